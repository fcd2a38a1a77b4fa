"""Visible lines: the messages of a turn, for pages reading the conversation from the gateway."""

from __future__ import annotations

from gateway.engine.delivery.visible_log import person_line
from gateway.engine.turns.feature import Ending, TurnFeature


class VisibleLines(TurnFeature):
    """Adds the messages of the turn to the visible log."""

    async def contribute(self, ending: Ending) -> None:
        for message in ending.turn.batch.messages:
            person_line(ending.transaction, self.context, ending.turn.conversation, message)
