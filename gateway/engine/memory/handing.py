"""The end of a turn for the memories: its commit hands their work over to the memory lanes."""

from __future__ import annotations

from dataclasses import asdict

from gateway.engine.context import EngineContext
from gateway.engine.memory.records import begin_epoch, hand_to_lanes, turn_memories
from gateway.engine.turns.running import RunningTurn
from gateway.memory import RESET
from gateway.store.transaction import Transaction
from gateway.stored.memory_events import FactsNoted, MemoryDue, MemoryEvent, conversation_lane, person_lane
from gateway.turn import Outcome


async def hand_to_memory(
    transaction: Transaction, context: EngineContext, running: RunningTurn, outcome: Outcome
) -> None:
    """Hand over what the memories have to read after this turn, and the facts that the model noted.

    A turn that was stopped is not read. After a reset, the memories of the conversation no longer count.
    """
    keeps, conversation, run_id = turn_memories(context.bot.agent), running.conversation, running.events.run_id
    if RESET in outcome.transcript:
        begin_epoch(transaction, context, conversation, run_id)
    if outcome.loop is None:
        return
    person = str(running.person)
    events: list[tuple[str, MemoryEvent]] = []
    if keeps and outcome.stop_reason != "cancelled":
        due = MemoryDue(event_id=f"memory/{run_id}", conversation=conversation, person=person, run_id=run_id)
        events.append((conversation_lane(conversation), due))
    if outcome.loop.noted:
        facts = FactsNoted(event_id=f"facts/{run_id}", facts=[asdict(fact) for fact in outcome.loop.noted])
        events.append((person_lane(context.bot.name, person), facts))
    await hand_to_lanes(transaction, context, events)
