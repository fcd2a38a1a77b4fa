"""A growing text as a draft on the pages of a session. No line of the visible log holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from channels.channel import Undeliverable
from channels.replies import Part, Receipt

__all__ = ["PageStream"]


class PageStream:
    """A StreamHandle to the pages of a session. They show the draft until a message of the bot comes."""

    interval_seconds = 0.25
    message_ids: Sequence[str] = ()

    def __init__(self, pages: Iterable[Callable[[str, str], None]], session: str) -> None:
        self._pages, self._session = pages, session

    async def update(self, text: str) -> None:
        """Show the text so far."""
        for tell in tuple(self._pages):
            tell(self._session, text)

    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Raises Undeliverable for any part, since no message shows the text."""
        if parts:
            raise Undeliverable("no_message")
        return ()
