"""Streams of the chat page: the number of open streams of a session, and the HTML shared by all streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from gateway.config.limits import Share
from gateway.web.markdown import is_slow

KEPT_CHARACTERS: Final = 8_000_000
"""HTML of messages kept by a process, in characters."""
DRAFT_CHARACTERS: Final = 1_000_000
"""HTML of growing answers kept by a process, in characters."""
_SHORT: Final = 1_000
"""Longest text rendered on the loop, in characters. Rendering takes 15 milliseconds at most; a text of 16,000 takes
250."""


class Streams:
    """The open streams of a process by session. `share`: the limit for a session, and for all sessions together."""

    def __init__(self, share: Share, *, reached: Callable[[], None] = lambda: None) -> None:
        """`reached` is called when a stream ends because all together hold too many."""
        self._share, self._reached = share, reached
        self._open: dict[str, dict[asyncio.Event, None]] = {}

    @contextlib.contextmanager
    def one(self, session: str) -> Iterator[asyncio.Event]:
        """Count a stream of a session during the body. The event is set once the stream has to end.

        Above the share of a session, its oldest stream ends. Above the share of all, the oldest stream of the session
        with the most streams ends. Many streams of a visitor therefore end no stream of another visitor.
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


class RenderingTurn:
    """The turn of a process's renderings: one text at a time, and for at most half of the time."""

    def __init__(self) -> None:
        self._lock, self._rests_until = asyncio.Lock(), 0.0

    async def made(self, make: Callable[[], str], *, long: bool) -> str:
        """Make HTML. `long`: in a thread, so the loop runs every few milliseconds."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            await asyncio.sleep(max(0.0, self._rests_until - loop.time()))
            began = loop.time()
            html = await asyncio.to_thread(make) if long else make()
            self._rests_until = 2 * loop.time() - began
        return html


class RenderedTexts:
    """The HTML of texts, rendered once for all streams of a text, and kept up to a number of characters."""

    def __init__(self, make: Callable[[str, bool], str], turn: RenderingTurn, most_characters: int) -> None:
        """`make` gets a text, and whether bare addresses become links."""
        self._make, self._turn, self._room = make, turn, most_characters
        self._kept: OrderedDict[tuple[str, bool], str] = OrderedDict()
        self._making: dict[tuple[str, bool], asyncio.Task[str]] = {}

    async def html(self, text: str, *, links: bool = True) -> str:
        """Return the HTML of a text."""
        key = (text, links)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._making:
            self._making[key] = asyncio.create_task(self._made(key), name="rendering")
        # A stream that ends must not end what others wait for, nor let a second thread begin beside it.
        return await asyncio.shield(self._making[key])

    async def _made(self, key: tuple[str, bool]) -> str:
        try:
            html = await self._turn.made(partial(self._make, *key), long=len(key[0]) > _SHORT or is_slow(key[0]))
        finally:
            del self._making[key]
        self._kept[key] = html
        self._room -= len(html) + len(key[0])
        while self._room < 0:
            (text, _), dropped = self._kept.popitem(last=False)
            self._room += len(dropped) + len(text)
        return html
