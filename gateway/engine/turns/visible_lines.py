"""Visible lines: the messages of a turn, for pages reading the conversation from the gateway."""

from __future__ import annotations

from gateway.engine.delivery.visible_log import person_line, steps_line
from gateway.engine.turns.feature import Ending, TurnFeature


class VisibleLines(TurnFeature):
    """Adds the messages of the turn and the tools that ran to the visible log."""

    async def contribute(self, ending: Ending) -> None:
        for message in ending.turn.batch.messages:
            person_line(ending.transaction, self.context, ending.turn.conversation, message)
        channel = self.context.channels.get(ending.turn.address.channel)
        loop = ending.outcome.loop if ending.outcome is not None else None
        if loop is None or channel is None or not channel.capabilities.visible or ending.turn.direct:
            return
        if ran := [step for step in loop.trace.steps if step.type == "tool_execution"]:
            ending.transaction.appends.append(steps_line(ending.turn.conversation, ran))
