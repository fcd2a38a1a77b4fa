"""The live feed: what happens in this process, for whoever is looking now."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from traceback import format_exception

from channels import Json

__all__ = ["BACKLOG", "Feed", "Notice"]

BACKLOG = 500
"""How many notices are remembered for those who look later."""
_MAX_TEXT = 8_000
_MAX_ITEMS = 100
_MAX_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that happened."""

    seq: int
    at: datetime
    name: str
    fields: Mapping[str, Json]


class Feed:
    """Remembers the last BACKLOG notices and gives them to any number of readers.

    Nothing waits for a reader: one that falls further behind than the backlog misses what fell out of it.
    """

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now
        # What a Notice is made of: mostly nobody reads it.
        self._notices: deque[tuple[int, datetime, str, Mapping[str, Json]]] = deque(maxlen=BACKLOG)
        self._readers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        # Milliseconds, not 0: a reader that comes back after a restart is given what is new.
        self._last = int(now().timestamp() * 1000)
        self._lock = Lock()

    def publish(self, name: str, /, **fields: object) -> None:
        """Tell that something happened, from any thread; it raises nothing, whatever the fields are.

        An error becomes its traceback, other values that are not JSON become text; what is long or deep is cut.
        """
        plain = {key: _plain(value) for key, value in fields.items()}
        with self._lock:
            self._last += 1
            self._notices.append((self._last, self._now(), name, plain))
            readers = list(self._readers.items())
        for changed, loop in readers:
            with contextlib.suppress(RuntimeError):  # that reader's loop has ended
                loop.call_soon_threadsafe(changed.set)

    async def subscribe(self, *, after: int = 0) -> AsyncGenerator[Notice, None]:
        """What is remembered of the notices after this one, and then all that come, until closed."""
        changed = asyncio.Event()
        with self._lock:
            self._readers[changed] = asyncio.get_running_loop()
        try:
            while True:
                changed.clear()
                with self._lock:
                    fresh = [told for told in self._notices if told[0] > after]
                for seq, at, name, fields in fresh:
                    yield Notice(seq=seq, at=at, name=name, fields=fields)
                    after = seq
                await changed.wait()
        finally:
            with self._lock:
                del self._readers[changed]


def _plain(value: object, depth: int = 0) -> Json:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}… ({len(value)} characters)"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return {str(key): _plain(item, depth + 1) for key, item in list(value.items())[:_MAX_ITEMS]}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, depth + 1) for item in list(value)[:_MAX_ITEMS]]
    try:
        told = "".join(format_exception(value)) if isinstance(value, BaseException) else str(value)
        return _plain(told, depth)
    except Exception:  # noqa: BLE001 - an author's object may raise anything here, and telling must not
        return f"<{type(value).__name__}>"
