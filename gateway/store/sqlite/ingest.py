"""Storing events in batches: the events that arrive during an operation are stored together in the next one.

One process stores far more events this way than with an operation for each.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence

from gateway.store.errors import Overloaded
from gateway.store.sqlite import mailbox
from gateway.store.sqlite.writer import Writer
from gateway.store.types import Incoming

__all__ = ["SqliteBatcher"]

_MOST = 200
"""The most batches in one operation, so that it stays short."""

_Put = tuple[list[mailbox.Arrival], "asyncio.Future[list[bool]]"]


class SqliteBatcher:
    """Stores events in batches. A new message is refused while `max_waiting` events wait, or a tenth of that in its
    conversation."""

    def __init__(self, writer: Writer, max_waiting: int, gather_seconds: float) -> None:
        self._writer = writer
        self._gather_seconds = gather_seconds
        self._max_waiting = max_waiting
        self._waiting: deque[_Put] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._not_before = -math.inf

    def accept(self, events: Sequence[Incoming]) -> asyncio.Future[list[bool]]:
        """Store events. Return for each whether it is new.

        Raises ValueError for an event that cannot be stored. The future raises Overloaded.
        """
        arrivals = [mailbox.arrival(event) for event in events]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[bool]] = loop.create_future()
        self._waiting.append((arrivals, answer))
        if self._idle.is_set():
            self._idle.clear()
            # Together with the events of the same moment, or of the next milliseconds.
            loop.call_later(max(0.0, self._not_before - loop.time()), self._store)
        return answer

    async def drain(self) -> None:
        """Wait until all events were answered."""
        await self._idle.wait()

    def _store(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
        batches = [arrivals for arrivals, _ in group]
        stored = self._writer.submit(lambda db, at: mailbox.accept(db, at, batches, self._max_waiting))
        stored.add_done_callback(lambda stored: self._stored(group, stored))

    def _stored(self, group: list[_Put], stored: asyncio.Future[list[list[bool] | Overloaded]]) -> None:
        loop = asyncio.get_running_loop()
        if len(group) > 1:
            self._not_before = loop.time() + self._gather_seconds
        if len(self._waiting) >= _MOST:
            self._store()
        elif self._waiting:
            loop.call_at(self._not_before, self._store)
        else:
            self._idle.set()
        error = stored.exception()
        verdicts: Sequence[list[bool] | Overloaded | BaseException] = (
            stored.result() if error is None else [error] * len(group)
        )
        for (_, answer), verdict in zip(group, verdicts, strict=True):
            if answer.done():  # its caller was cancelled
                continue
            if isinstance(verdict, list):
                answer.set_result(verdict)
            else:
                answer.set_exception(verdict)
