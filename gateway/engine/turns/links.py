"""Links: the links of a conversation end when the person begins a new conversation."""

from __future__ import annotations

from gateway.engine.delivery.links import end_links
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.memory import RESET


class EndedLinks(TurnFeature):
    """Ends the links to the files of a conversation with an emptied transcript."""

    async def contribute(self, ending: Ending) -> None:
        if RESET in ending.lines:
            end_links(ending.transaction, self.context, ending.turn.conversation)
