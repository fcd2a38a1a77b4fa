"""Events on their way in: what comes while others are being stored goes together with the next.

One process takes in far more this way than with an operation each.
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

GATHER_SECONDS = 0.003
"""So long after several were stored together the next ones wait for more: one transaction of many takes a fraction of
what several take. One that comes alone does not wait."""
_MOST = 200
"""At most so many batches in one operation, so that it stays short."""

_Put = tuple[list[mailbox.Arrival], "asyncio.Future[list[bool]]"]


class SqliteBatcher:
    """Takes events in; a new message is refused while `max_waiting` events wait, or a tenth of them in its
    conversation."""

    def __init__(self, writer: Writer, max_waiting: int) -> None:
        self._writer = writer
        self._max_waiting = max_waiting
        self._waiting: deque[_Put] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._not_before = -math.inf

    def accept(self, events: Sequence[Incoming]) -> asyncio.Future[list[bool]]:
        """Which of them are new. Raises ValueError for what cannot be stored; the future, Overloaded."""
        arrivals = [mailbox.arrival(event) for event in events]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[bool]] = loop.create_future()
        self._waiting.append((arrivals, answer))
        if self._idle.is_set():
            self._idle.clear()
            # With what else came in the same moment, or shortly after others.
            loop.call_later(max(0.0, self._not_before - loop.time()), self._store)
        return answer

    async def finished(self) -> None:
        """Returns when all that was put has been answered."""
        await self._idle.wait()

    def _store(self) -> None:
        aboard = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
        batches = [arrivals for arrivals, _ in aboard]
        stored = self._writer.submit(lambda db, at: mailbox.accept(db, at, batches, self._max_waiting))
        stored.add_done_callback(lambda stored: self._stored(aboard, stored))

    def _stored(self, aboard: list[_Put], stored: asyncio.Future[list[list[bool] | Overloaded]]) -> None:
        loop = asyncio.get_running_loop()
        if len(aboard) > 1:
            self._not_before = loop.time() + GATHER_SECONDS
        if len(self._waiting) >= _MOST:
            self._store()
        elif self._waiting:
            loop.call_at(self._not_before, self._store)
        else:
            self._idle.set()
        error = stored.exception()
        verdicts: Sequence[list[bool] | Overloaded | BaseException] = (
            stored.result() if error is None else [error] * len(aboard)
        )
        for (_, answer), verdict in zip(aboard, verdicts, strict=True):
            if answer.done():  # who put it has given up
                continue
            if isinstance(verdict, list):
                answer.set_result(verdict)
            else:
                answer.set_exception(verdict)
