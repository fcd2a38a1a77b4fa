"""Events on their way in: what comes while a call is on its way goes together with the next.

One process takes in far more this way than with a call each, and nobody waits longer for it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from redis.exceptions import OutOfMemoryError

from gateway.store.base import Incoming, Overloaded, StoreUnavailable
from gateway.store.redis import scripts
from gateway.store.redis.arguments import event_arguments
from gateway.store.redis.client import Value
from gateway.store.redis.server import Server

__all__ = ["Inbox"]

_MOST: Final = 200
"""At most so many batches in one call, so that it stays short."""

Verdict = int | list[int]
"""Which of a batch's events are new (1) or twins (0); a number: refused, because so many wait."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Events of one partition that are stored together or not at all."""

    told: list[Value]
    refusable: bool
    answer: asyncio.Future[list[int]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Inbox:
    """Takes events in; a new message is refused while `max_waiting` events wait in its partition."""

    def __init__(
        self, server: Server, partition: Callable[[str], str], max_waiting: int, patience_seconds: float
    ) -> None:
        self._server = server
        self._partition = partition
        self._max_waiting = max_waiting
        self._patience_seconds = patience_seconds
        self._waiting: defaultdict[str, list[_Batch]] = defaultdict(list)
        self._busy: dict[str, asyncio.Task[None]] = {}

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        """Which of them are new. Raises Overloaded, and StoreUnavailable when it took too long."""
        self._server.check_open()
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, event in enumerate(events):
            groups[self._partition(event.conversation)].append(number)
        batches = {partition: _batch([events[n] for n in numbers]) for partition, numbers in groups.items()}
        try:
            async with asyncio.timeout(self._patience_seconds):
                if len(batches) > 1 and any(batch.refusable for batch in batches.values()):
                    for partition, batch in batches.items():  # what one has stored cannot be undone for another
                        [verdict] = await self._deliver(partition, [batch], look=True)
                        _admitted(verdict)
                    unrefusable = [replace(event, refusable=False) for event in events]
                    batches = {p: _batch([unrefusable[n] for n in numbers]) for p, numbers in groups.items()}
                verdicts = await asyncio.gather(*(self._put(p, batch) for p, batch in batches.items()))
        except TimeoutError:
            raise StoreUnavailable(f"Redis took no event within {self._patience_seconds} seconds") from None
        fresh = [False] * len(events)
        for numbers, verdict in zip(groups.values(), verdicts, strict=True):
            for number, new in zip(numbers, verdict, strict=True):
                fresh[number] = bool(new)
        return fresh

    async def finished(self) -> None:
        """Returns when all that was put has been answered."""
        while self._busy:
            await asyncio.wait(self._busy.values())

    def _put(self, partition: str, batch: _Batch) -> asyncio.Future[list[int]]:
        self._waiting[partition].append(batch)
        if partition not in self._busy:
            self._busy[partition] = asyncio.create_task(self._work_off(partition))
        return batch.answer

    async def _work_off(self, partition: str) -> None:
        try:
            while waiting := self._waiting.pop(partition, None):
                # In order; and apart, because a full server takes only what may not be refused.
                batches = list(takewhile(lambda batch: batch.refusable == waiting[0].refusable, waiting[:_MOST]))
                if later := waiting[len(batches) :]:
                    self._waiting[partition] = later
                try:
                    verdicts = await self._deliver(partition, batches)
                except (StoreUnavailable, Overloaded) as error:
                    for batch in batches:
                        _settle(batch, error)
                else:
                    for batch, verdict in zip(batches, verdicts, strict=True):
                        _settle(batch, verdict)
        finally:
            del self._busy[partition]

    async def _deliver(self, partition: str, batches: Sequence[_Batch], *, look: bool = False) -> list[Verdict]:
        refusable = batches[0].refusable
        told = [self._max_waiting, int(look), len(batches), *(word for batch in batches for word in batch.told)]
        script = scripts.ACCEPT_NEW if refusable else scripts.ACCEPT
        try:
            [[latest, verdicts]] = await self._server.run_at(
                script, [(self._server.keys.base(partition), told)], ack=True
            )
        except StoreUnavailable as error:
            if refusable and isinstance(error.__cause__, OutOfMemoryError):
                raise Overloaded("Redis has no memory left for new messages: try again later") from error
            raise
        self._server.seen(latest)
        answers: list[Verdict] = verdicts
        return answers


def _batch(events: Sequence[Incoming]) -> _Batch:
    """Raises ValueError for what is no JSON."""
    told: list[Value] = [len(events)]
    for event in events:
        told += event_arguments(event)
    return _Batch(told, any(event.refusable for event in events))


def _settle(batch: _Batch, verdict: Verdict | Exception) -> None:
    if batch.answer.done():  # who put it has given up
        return
    try:
        if isinstance(verdict, Exception):
            raise verdict
        batch.answer.set_result(_admitted(verdict))
    except (StoreUnavailable, Overloaded) as error:
        batch.answer.set_exception(error)


def _admitted(verdict: Verdict) -> list[int]:
    """Raises Overloaded."""
    if isinstance(verdict, int):
        raise Overloaded(f"{verdict} events wait, which is all that may: try again when some are dealt with")
    return verdict
