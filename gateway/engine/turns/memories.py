"""Memories: the memories for the model in a turn, and the work for the memory lanes afterwards."""

from __future__ import annotations

from dataclasses import asdict

from gateway.bot.turn import Turn
from gateway.engine.memory.records import begin_epoch, hand_to_lanes, remembered, turn_memories
from gateway.engine.turns.feature import Ending, RunningTurn, TurnFeature
from gateway.memory import RESET
from gateway.stored.memory_events import FactsNoted, MemoryDue, MemoryEvent, conversation_lane, person_lane


class Memories(TurnFeature):
    """Gives the memories to the model, and hands over the turn's work to the memory lanes.

    A stopped turn starts no reading. The next reading includes the lines of the stopped turn. After a reset, the
    memories of the conversation no longer count.
    """

    async def before(self, turn: RunningTurn, asked: Turn) -> None:
        if not self.context.bot.commands.are_meant(asked):
            asked.remembered = await remembered(self.context, asked)

    async def contribute(self, ending: Ending) -> None:
        context, turn, outcome = self.context, ending.turn, ending.outcome
        keeps, conversation, run_id = turn_memories(context.bot.agent), turn.conversation, turn.events.run_id
        if RESET in ending.lines:
            begin_epoch(ending.transaction, context, conversation, run_id)
        if outcome is None or outcome.loop is None:
            return
        person = str(turn.person)
        events: list[tuple[str, MemoryEvent]] = []
        if keeps and outcome.stop_reason != "cancelled":
            due = MemoryDue(event_id=f"memory/{run_id}", conversation=conversation, person=person, run_id=run_id)
            events.append((conversation_lane(conversation), due))
        if outcome.loop.noted:
            facts = FactsNoted(event_id=f"facts/{run_id}", facts=[asdict(fact) for fact in outcome.loop.noted])
            events.append((person_lane(context.bot.name, person), facts))
        await hand_to_lanes(ending.transaction, context, events)
