"""Events on their way in: what comes while a call is on its way goes together with the next.

One process takes in far more this way than with a call each.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from redis.exceptions import OutOfMemoryError, RedisError

from gateway.store.errors import MailboxFull, Overloaded, StoreUnavailable
from gateway.store.redis import scripts
from gateway.store.redis.client import Call, Value, unavailable
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import PARTITIONS
from gateway.store.redis.wire import event_arguments, text_of
from gateway.store.types import Incoming, conversation_limit

__all__ = ["RedisBatcher"]

_COUNTED_SECONDS: Final = 1.0
"""How old the count of what waits elsewhere may be."""
_COUNTED_ANEW_SECONDS: Final = 0.1
"""How old it may be to refuse by it."""
GATHER_SECONDS: Final = 0.002
"""So long after several were stored together the next ones wait for more, as they do while a call is on its way: one
for many of them takes a fraction of what several take. One that comes alone does not wait."""
_MOST: Final = 200
"""At most so many batches of one partition at once, so that its call stays short."""

Verdict = int | bytes | list[int]
"""Which of a batch's events are new (1) or twins (0); a number: refused, because so many wait; a name: refused, because
so many wait in that conversation."""
_Verdicts = dict[str, list[Verdict | Exception]]
"""Partition -> what became of each batch."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Events of one partition that are stored together or not at all."""

    told: list[Value]
    refusable: bool
    answer: asyncio.Future[list[int]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class RedisBatcher:
    """Takes events in; a new message is refused while about `max_waiting` events wait, or a tenth of them in its
    conversation.

    How many wait in its own partition is known when it is stored; in the others, it was counted a moment ago.
    """

    def __init__(self, server: Server, partition: Callable[[str], str], max_waiting: int) -> None:
        self._server = server
        self._partition = partition
        self._max_waiting = max_waiting
        self._waiting: defaultdict[str, list[_Batch]] = defaultdict(list)
        self._busy: asyncio.Task[None] | None = None
        self._not_before = -math.inf
        self._counts = dict.fromkeys(PARTITIONS, 0)
        """How many wait in each partition, as it was heard last."""
        self._counted_at = -math.inf

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        """Which of them are new. Raises Overloaded and StoreUnavailable."""
        self._server.check_open()
        if len(events) == 1:
            [new] = await self._put(self._partition(events[0].conversation), _batch(events))
            return [bool(new)]
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, event in enumerate(events):
            groups[self._partition(event.conversation)].append(number)
        batches = {partition: _batch([events[n] for n in numbers]) for partition, numbers in groups.items()}
        if len(batches) > 1 and any(batch.refusable for batch in batches.values()):
            # What one partition has stored cannot be undone for another.
            for verdicts in (await self._deliver({p: [batch] for p, batch in batches.items()}, look=True)).values():
                self._admitted(verdicts[0])
            unrefusable = [replace(event, refusable=False) for event in events]
            batches = {p: _batch([unrefusable[n] for n in numbers]) for p, numbers in groups.items()}
        answers = [self._put(partition, batch) for partition, batch in batches.items()]
        fresh = [False] * len(events)
        for numbers, verdict in zip(groups.values(), await asyncio.gather(*answers), strict=True):
            for number, new in zip(numbers, verdict, strict=True):
                fresh[number] = bool(new)
        return fresh

    async def finished(self) -> None:
        """Returns when all that was put has been answered."""
        while self._busy is not None:
            await asyncio.wait([self._busy])

    def _put(self, partition: str, batch: _Batch) -> asyncio.Future[list[int]]:
        self._waiting[partition].append(batch)
        if self._busy is None:
            self._busy = asyncio.create_task(self._work_off())
        return batch.answer

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                if (wait := self._not_before - asyncio.get_running_loop().time()) > 0:
                    await asyncio.sleep(wait)
                aboard = {partition: self._next(partition) for partition in list(self._waiting)}
                try:
                    verdicts = await self._deliver(aboard)
                except Exception as error:  # noqa: BLE001 - nobody waits for ever
                    verdicts = {partition: [error] * len(batches) for partition, batches in aboard.items()}
                for partition, batches in aboard.items():
                    for batch, verdict in zip(batches, verdicts[partition], strict=True):
                        self._settle(batch, verdict)
                if sum(map(len, aboard.values())) > 1:
                    self._not_before = asyncio.get_running_loop().time() + GATHER_SECONDS
        finally:
            self._busy = None

    def _next(self, partition: str) -> list[_Batch]:
        """In order; and apart, because a full server takes only what may not be refused."""
        waiting = self._waiting.pop(partition)
        batches = list(takewhile(lambda batch: batch.refusable == waiting[0].refusable, waiting[:_MOST]))
        if later := waiting[len(batches) :]:
            self._waiting[partition] = later
        return batches

    async def _deliver(self, aboard: Mapping[str, Sequence[_Batch]], *, look: bool = False) -> _Verdicts:
        if any(batches[0].refusable for batches in aboard.values()):
            await self._count(_COUNTED_SECONDS)
        verdicts = await self._send(aboard, look=look)
        refused = {
            p: [n for n, verdict in enumerate(found) if isinstance(verdict, int)] for p, found in verdicts.items()
        }
        refused = {partition: numbers for partition, numbers in refused.items() if numbers}
        if refused and await self._count(_COUNTED_ANEW_SECONDS):  # perhaps there is room by now
            again = await self._send({p: [aboard[p][n] for n in numbers] for p, numbers in refused.items()}, look=look)
            for partition, numbers in refused.items():
                for number, verdict in zip(numbers, again[partition], strict=True):
                    verdicts[partition][number] = verdict
        return verdicts

    async def _count(self, older_than_seconds: float) -> bool:
        """Count anew what waits in all partitions, if that is so long ago; whether it was."""
        now = asyncio.get_running_loop().time()
        if now - self._counted_at < older_than_seconds:
            return False
        self._counted_at = now
        places = [(self._server.keys.base(partition), ()) for partition in PARTITIONS]
        counts = await self._server.run_at(scripts.WAITING, places, ack=True)
        self._counts = dict(zip(PARTITIONS, counts, strict=True))
        return True

    async def _send(self, aboard: Mapping[str, Sequence[_Batch]], *, look: bool) -> _Verdicts:
        calls: list[Call] = []
        for partition, batches in aboard.items():
            most = self._max_waiting - sum(self._counts.values()) + self._counts[partition]
            in_one = conversation_limit(self._max_waiting)
            told = [most, in_one, int(look), len(batches), *(word for batch in batches for word in batch.told)]
            script = scripts.ACCEPT_NEW if batches[0].refusable else scripts.ACCEPT
            calls.append((script, self._server.keys.base(partition), told))
        verdicts: _Verdicts = {}
        for (partition, batches), answer in zip(aboard.items(), await self._server.each_ack(calls), strict=True):
            if isinstance(answer, RedisError):
                verdicts[partition] = [_refusal(answer, refusable=batches[0].refusable)] * len(batches)
                continue
            latest, verdicts[partition], self._counts[partition] = answer
            self._server.seen(latest)
        return verdicts

    def _settle(self, batch: _Batch, verdict: Verdict | Exception) -> None:
        if batch.answer.done():  # who put it has given up
            return
        try:
            batch.answer.set_result(self._admitted(verdict))
        except Exception as error:  # noqa: BLE001 - its caller gets it
            batch.answer.set_exception(error)

    def _admitted(self, verdict: Verdict | Exception) -> list[int]:
        """Raises Overloaded and StoreUnavailable."""
        if isinstance(verdict, Exception):
            raise verdict
        if isinstance(verdict, bytes):
            raise MailboxFull(text_of(verdict), conversation_limit(self._max_waiting))
        if isinstance(verdict, int):
            waiting = sum(self._counts.values())
            raise Overloaded(f"{waiting} events wait, which is all that may: try again when some are dealt with")
        return verdict


def _refusal(error: RedisError, *, refusable: bool) -> Overloaded | StoreUnavailable:
    if refusable and isinstance(error, OutOfMemoryError):
        return Overloaded("Redis has no memory left for new messages: try again later")
    return unavailable(error)


def _batch(events: Sequence[Incoming]) -> _Batch:
    """Raises ValueError for what is no JSON."""
    told: list[Value] = [len(events)]
    for event in events:
        told += event_arguments(event)
    return _Batch(told, any(event.refusable for event in events))
