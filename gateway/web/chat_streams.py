"""Streams of the chat page: how many a session may hold open, and the HTML that all of them share."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from gateway.limits import Share

KEPT_CHARACTERS: Final = 8_000_000
"""HTML of messages that a process keeps, in characters."""
DRAFT_CHARACTERS: Final = 1_000_000
"""HTML of growing answers that a process keeps, in characters."""


class Streams:
    """The open streams of a process by session. `share`: the most of one session, and of all together."""

    def __init__(self, share: Share, *, reached: Callable[[], None] = lambda: None) -> None:
        """`reached` is called when a stream ends because all together hold too many."""
        self._share, self._reached = share, reached
        self._open: dict[str, dict[asyncio.Event, None]] = {}

    @contextlib.contextmanager
    def one(self, session: str) -> Iterator[asyncio.Event]:
        """Count a stream of a session during the body. The event is set once the stream has to end.

        Above the share of a session, its oldest stream ends. Above the share of all, the oldest stream of the session
        with the most streams ends, so that many streams of one visitor end none of another.
        """
        ends = asyncio.Event()
        self._open.setdefault(session, {})[ends] = None
        most, most_of_all = self._share.person, self._share.all
        if most is not None and len(self._open[session]) > most:
            self._end_oldest(session)
        elif most_of_all is not None and sum(map(len, self._open.values())) > most_of_all:
            self._reached()
            self._end_oldest(max(self._open, key=lambda name: len(self._open[name])))
        try:
            yield ends
        finally:
            self._forget(session, ends)

    def end(self, session: str) -> None:
        """End all streams of a session."""
        for ends in self._open.pop(session, {}):
            ends.set()

    def _end_oldest(self, session: str) -> None:
        oldest = next(iter(self._open[session]))
        self._forget(session, oldest)
        oldest.set()

    def _forget(self, session: str, ends: asyncio.Event) -> None:
        streams = self._open.get(session, {})
        streams.pop(ends, None)
        if not streams:
            self._open.pop(session, None)


class RenderedTexts:
    """The HTML of texts, made once for all streams that show them, and kept up to a number of characters.

    `turn` is shared by all that make HTML in a process: one text at a time, and for at most half of the loop's time.
    """

    def __init__(self, make: Callable[[str, bool], str], turn: asyncio.Lock, most_characters: int) -> None:
        """`make` gets a text, and whether its bare addresses become links."""
        self._make, self._turn, self._room = make, turn, most_characters
        self._kept: OrderedDict[tuple[str, bool], str] = OrderedDict()

    async def html(self, text: str, *, links: bool = True) -> str:
        """Return the HTML of a text. The loop goes round before the next text is rendered."""
        key = (text, links)
        if key not in self._kept:
            async with self._turn:
                if key not in self._kept:
                    return await self._made(key)
        self._kept.move_to_end(key)
        return self._kept[key]

    async def _made(self, key: tuple[str, bool]) -> str:
        loop = asyncio.get_running_loop()
        began = loop.time()
        html = self._kept[key] = self._make(*key)
        self._room -= len(html) + len(key[0])
        while self._room < 0:
            (text, _), dropped = self._kept.popitem(last=False)
            self._room += len(dropped) + len(text)
        await asyncio.sleep(loop.time() - began)
        return html
