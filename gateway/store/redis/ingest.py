"""Storing events in batches: events arriving during a call are stored together in the next call.

A process stores far more events this way than with a call for each.
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
from gateway.store.redis.connection import RedisTimings, Server
from gateway.store.redis.keys import PARTITIONS
from gateway.store.redis.wire import event_arguments, text_of
from gateway.store.types import Incoming, conversation_limit

_COUNTED_ANEW_SECONDS: Final = 0.1
"""Greatest age of the count for refusing an event."""
_MOST: Final = 200
"""The most batches of a partition in a call, to keep calls short."""

Verdict = int | bytes | list[int]
"""For each event of a batch, 1 if new and 0 for a twin. For a refused batch: a number, the count of waiting events, or
a name, the conversation with too many waiting events."""
_Verdicts = dict[str, list[Verdict | Exception]]
"""Partition -> the verdict of each batch."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Events of a partition, stored all together or not at all."""

    arguments: list[Value]
    refusable: bool
    answer: asyncio.Future[list[int]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class RedisBatcher:
    """Stores events in batches. A new message is refused while about `max_waiting` events wait, or a tenth of this
    number in the conversation.

    The count of the message's partition is exact; the counts of the others are up to a second old.
    """

    def __init__(
        self, server: Server, partition: Callable[[str], str], max_waiting: int, timings: RedisTimings
    ) -> None:
        self._server = server
        self._timings = timings
        self._partition = partition
        self._max_waiting = max_waiting
        self._waiting: defaultdict[str, list[_Batch]] = defaultdict(list)
        self._busy: asyncio.Task[None] | None = None
        self._not_before = -math.inf
        self._counts = dict.fromkeys(PARTITIONS, 0)
        """Partition -> waiting events at the last count."""
        self._counted_at = -math.inf

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        """Store events. Return for each True if new. Raises Overloaded and StoreUnavailable."""
        self._server.check_open()
        if len(events) == 1:
            [new] = await self._put(self._partition(events[0].conversation), _batch(events))
            return [bool(new)]
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, event in enumerate(events):
            groups[self._partition(event.conversation)].append(number)
        batches = {partition: _batch([events[n] for n in numbers]) for partition, numbers in groups.items()}
        if len(batches) > 1 and any(batch.refusable for batch in batches.values()):
            # Events that one partition has stored cannot be removed when another refuses its own.
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

    async def drain(self) -> None:
        """Wait until all events were answered."""
        while self._busy is not None:
            await asyncio.wait([self._busy])

    def _put(self, partition: str, batch: _Batch) -> asyncio.Future[list[int]]:
        self._waiting[partition].append(batch)
        if self._busy is None:
            self._busy = asyncio.create_task(self._store_all())
        return batch.answer

    async def _store_all(self) -> None:
        try:
            while self._waiting:
                if (wait := self._not_before - asyncio.get_running_loop().time()) > 0:
                    await asyncio.sleep(wait)
                groups = {partition: self._next(partition) for partition in list(self._waiting)}
                try:
                    verdicts = await self._deliver(groups)
                except Exception as error:  # noqa: BLE001 - every caller gets an answer
                    verdicts = {partition: [error] * len(batches) for partition, batches in groups.items()}
                for partition, batches in groups.items():
                    for batch, verdict in zip(batches, verdicts[partition], strict=True):
                        self._settle(batch, verdict)
                if sum(map(len, groups.values())) > 1:
                    self._not_before = asyncio.get_running_loop().time() + self._timings.gather_seconds
        finally:
            self._busy = None

    def _next(self, partition: str) -> list[_Batch]:
        """Return the next batches in order, all refusable or none: a full server accepts only the latter."""
        waiting = self._waiting.pop(partition)
        batches = list(takewhile(lambda batch: batch.refusable == waiting[0].refusable, waiting[:_MOST]))
        if later := waiting[len(batches) :]:
            self._waiting[partition] = later
        return batches

    async def _deliver(self, groups: Mapping[str, Sequence[_Batch]], *, look: bool = False) -> _Verdicts:
        if any(batches[0].refusable for batches in groups.values()):
            await self._count(self._timings.counted_seconds)
        verdicts = await self._send(groups, look=look)
        refused = {
            p: [n for n, verdict in enumerate(found) if isinstance(verdict, int)] for p, found in verdicts.items()
        }
        refused = {partition: numbers for partition, numbers in refused.items() if numbers}
        if refused and await self._count(_COUNTED_ANEW_SECONDS):  # with a new count they may be accepted
            again = await self._send({p: [groups[p][n] for n in numbers] for p, numbers in refused.items()}, look=look)
            for partition, numbers in refused.items():
                for number, verdict in zip(numbers, again[partition], strict=True):
                    verdicts[partition][number] = verdict
        return verdicts

    async def _count(self, older_than_seconds: float) -> bool:
        """Count the waiting events of all partitions, if the last count is older. Return True after a new count."""
        now = asyncio.get_running_loop().time()
        if now - self._counted_at < older_than_seconds:
            return False
        self._counted_at = now
        places = [(self._server.keys.base(partition), ()) for partition in PARTITIONS]
        counts = await self._server.run_at(scripts.WAITING, places, ack=True)
        self._counts = dict(zip(PARTITIONS, counts, strict=True))
        return True

    async def _send(self, groups: Mapping[str, Sequence[_Batch]], *, look: bool) -> _Verdicts:
        calls: list[Call] = []
        for partition, batches in groups.items():
            most = self._max_waiting - sum(self._counts.values()) + self._counts[partition]
            in_one = conversation_limit(self._max_waiting)
            sent = [most, in_one, int(look), len(batches), *(word for batch in batches for word in batch.arguments)]
            script = scripts.ACCEPT_NEW if batches[0].refusable else scripts.ACCEPT
            calls.append((script, self._server.keys.base(partition), sent))
        verdicts: _Verdicts = {}
        for (partition, batches), answer in zip(groups.items(), await self._server.each_ack(calls), strict=True):
            if isinstance(answer, RedisError):
                verdicts[partition] = [_refusal(answer, refusable=batches[0].refusable)] * len(batches)
                continue
            latest, verdicts[partition], self._counts[partition] = answer
            self._server.wrote(partition, latest)
        return verdicts

    def _settle(self, batch: _Batch, verdict: Verdict | Exception) -> None:
        if batch.answer.done():  # its caller was cancelled
            return
        try:
            batch.answer.set_result(self._admitted(verdict))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            batch.answer.set_exception(error)

    def _admitted(self, verdict: Verdict | Exception) -> list[int]:
        """Return the verdict on the events of a batch. Raises Overloaded and StoreUnavailable."""
        if isinstance(verdict, Exception):
            raise verdict
        if isinstance(verdict, bytes):
            raise MailboxFull(text_of(verdict), conversation_limit(self._max_waiting))
        if isinstance(verdict, int):
            raise Overloaded.by_count(sum(self._counts.values()))
        return verdict


def _refusal(error: RedisError, *, refusable: bool) -> Overloaded | StoreUnavailable:
    if refusable and isinstance(error, OutOfMemoryError):
        return Overloaded("Redis has no memory left for new messages: try again later")
    return unavailable(error)


def _batch(events: Sequence[Incoming]) -> _Batch:
    """Return a batch. Raises ValueError for a body without JSON form."""
    arguments: list[Value] = [len(events)]
    for event in events:
        arguments += event_arguments(event)
    return _Batch(arguments, any(event.refusable for event in events))
