"""The store that many processes share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from redis.exceptions import OutOfMemoryError

from gateway.store.base import (
    Cell,
    Conflict,
    Control,
    Dead,
    Entry,
    Fenced,
    Incoming,
    Key,
    Kind,
    Lease,
    Overloaded,
    QueuedPart,
    Record,
    Snapshot,
    Stats,
    StoreRefused,
    StoreUnavailable,
    TooLate,
    Transaction,
    Waiting,
)
from gateway.store.redis import arguments as told
from gateway.store.redis import scripts, startup
from gateway.store.redis.client import Client, Value
from gateway.store.redis.inbox import Batch, Inbox, Verdict
from gateway.store.redis.keys import PARTITIONS, Keys, partition_of, to_bytes
from gateway.store.redis.news import News
from gateway.store.redis.scripts import Script
from gateway.store.sqlite.codec import dead_from_text, decode, incoming_from_text, moment, span

__all__ = ["RedisStore"]

T = TypeVar("T")

_WORK_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 1.0
"""Who waits for a lease looks at least this often, in case news was lost."""
_READ_AGAIN_SECONDS: Final = 5.0
_TIMERS: Final = 500
"""At most so many of a partition fall due at once."""


class RedisStore:
    """A store on a Redis server of version 7.0 or later; see `gateway.store.base.Store`.

    `url` is ``redis://`` or ``rediss://``; all keys begin with `prefix`. A new message is refused while `max_waiting`
    events wait in its partition, of which there are sixteen. What a platform waits for (`accept`, `ping`) is given up
    after `ack_seconds`. `open` raises StoreRefused for a server that cannot keep what it is given.
    """

    def __init__(
        self, url: str, *, prefix: str = "askfirst", max_waiting: int = 10_000, ack_seconds: float = 0.25
    ) -> None:
        self._url = url
        self._keys = Keys(prefix)
        self._max_waiting = max_waiting
        self._ack_seconds = ack_seconds
        self._offset = 0
        self._latest = 0
        """The latest moment that anybody was told of: the clock does not go back behind it."""
        self._open = False
        self._running: set[asyncio.Future[Any]] = set()
        self._queues: WeakValueDictionary[tuple[tuple[Kind, ...], str | None], asyncio.Lock] = WeakValueDictionary()

    @property
    def offset_seconds(self) -> float:
        """Added to the store's clock: 0 in production, moved by FakeClock."""
        return self._offset / 1_000_000

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._offset = span(seconds)
        if self._open:
            self._news.tell_all()

    async def open(self) -> None:
        """Connect, and look whether the server can be trusted. Raises StoreRefused and StoreUnavailable."""
        if self._open:
            return
        try:
            self._work = Client(self._url, timeout_seconds=_WORK_SECONDS, connections=32)
            self._ack = Client(self._url, timeout_seconds=self._ack_seconds, connections=16)
            self._news = News(self._url, self._keys.news)
        except ValueError:  # its text may hold the password
            raise StoreRefused(
                "ASKFIRST_STORE is no address: write redis://[user:password@]host:6379[/number]"
            ) from None
        self._inbox = Inbox(self._deliver)
        try:
            await startup.check(self._work, self._keys)
            await self._news.open()
        except BaseException:
            await self._disconnect()
            raise
        self._open = True

    async def close(self) -> None:
        """Do what was asked before, refuse what waits for a lease or a log line, and disconnect."""
        if not self._open:
            return
        self._open = False
        self._news.tell_all()
        await self._inbox.finished()
        while self._running:
            await asyncio.wait(self._running)
        await self._disconnect()

    async def _disconnect(self) -> None:
        await self._news.close()
        await self._ack.close()
        await self._work.close()

    def partition(self, conversation: str) -> str:
        return partition_of(conversation)

    async def now(self) -> datetime:
        seconds, micros = await self._track(self._client(self._work).command("TIME"))
        return self._seen(int(seconds) * 1_000_000 + int(micros) + self._offset)

    # ───────────── in ─────────────

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        self._client(self._ack)
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, event in enumerate(events):
            groups[self.partition(event.conversation)].append(number)
        batches = {partition: [events[n] for n in numbers] for partition, numbers in groups.items()}
        try:
            async with asyncio.timeout(self._ack_seconds):
                if len(batches) > 1 and any(event.refusable for event in events):
                    batches = await self._admitted(batches)
                verdicts = await asyncio.gather(
                    *(self._inbox.put(*lane_and_batch) for lane_and_batch in batches.items())
                )
        except TimeoutError:
            raise StoreUnavailable(f"Redis did not take an event within {self._ack_seconds} seconds") from None
        fresh = [False] * len(events)
        for numbers, verdict in zip(groups.values(), verdicts, strict=True):
            for number, new in zip(numbers, _admitted(verdict), strict=True):
                fresh[number] = bool(new)
        return fresh

    async def _admitted(self, batches: dict[str, list[Incoming]]) -> dict[str, list[Incoming]]:
        """The same, once no partition refuses its own: what is stored in one cannot be undone for another."""
        for partition, batch in batches.items():
            [verdict] = await self._deliver((partition, True), [batch], look=True)
            _admitted(verdict)
        return {partition: [replace(event, refusable=False) for event in batch] for partition, batch in batches.items()}

    async def _deliver(self, lane: tuple[str, bool], batches: Sequence[Batch], look: bool = False) -> list[Verdict]:
        partition, refusable = lane
        script = scripts.ACCEPT_NEW if refusable else scripts.ACCEPT
        sent: list[Value] = [self._max_waiting, int(look), len(batches)]
        for batch in batches:
            sent.append(len(batch))
            for event in batch:
                sent += told.event_arguments(event)
        try:
            [(latest, verdicts)] = await self._ack.run([(script, self._keys.base(partition), [*self._head(), *sent])])
        except StoreUnavailable as error:
            if isinstance(error.__cause__, OutOfMemoryError) and refusable:
                raise Overloaded("Redis has no memory left for new messages: try again later") from error
            raise
        self._seen(latest)
        answers: list[Verdict] = verdicts
        return answers

    async def pointed(
        self, conversation: str | None = None, *, older_than_seconds: float = 0.0, limit: int = 100
    ) -> list[Waiting]:
        which: list[Value] = [0] if conversation is None else [1, to_bytes(conversation)]
        partitions = PARTITIONS if conversation is None else [self.partition(conversation)]
        found = await self._run(scripts.POINTED, partitions, *which, span(older_than_seconds), limit)
        events = [told.read_waiting(event) for answer in found for event in answer]
        return sorted(events, key=lambda event: event.seq)[:limit]

    # ───────────── lanes ─────────────

    async def lease(
        self,
        worker: str,
        kinds: Sequence[Kind],
        *,
        only: str | None = None,
        wait_seconds: float = 0.0,
        lease_seconds: float = 6.0,
    ) -> Lease | None:
        kinds = tuple(kinds)
        lease, _ = await self._attempt(worker, kinds, only, lease_seconds)
        if lease is not None or wait_seconds <= 0:
            return lease
        queue = self._queues.setdefault((kinds, only), asyncio.Lock())
        with suppress(TimeoutError):
            # Of many who wait here for the same, one looks, and the next when that one was served.
            async with asyncio.timeout(wait_seconds), queue:
                with self._news.following(kind.encode() for kind in kinds) as heard:
                    while True:
                        heard.clear()
                        lease, patience = await self._attempt(worker, kinds, only, lease_seconds)
                        if lease is not None:
                            return lease
                        with suppress(TimeoutError):
                            await asyncio.wait_for(heard.wait(), patience)
        return None

    async def _attempt(
        self, worker: str, kinds: tuple[Kind, ...], only: str | None, lease_seconds: float
    ) -> tuple[Lease | None, float]:
        """A lease, or how long until it is worth to look again. A caller who is cancelled holds nothing."""
        attempt = asyncio.ensure_future(self._take(worker, kinds, only, lease_seconds))
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            self._keep(asyncio.ensure_future(self._return(attempt)))
            raise

    async def _take(
        self, worker: str, kinds: tuple[Kind, ...], only: str | None, lease_seconds: float
    ) -> tuple[Lease | None, float]:
        lanes = told.lane_arguments(kinds, only)
        partitions: Sequence[str] = PARTITIONS
        if only is not None and "action" not in kinds:  # an action's id does not say its partition
            partitions = [self.partition(only)]
        while True:
            looks = await self._run(scripts.PEEK, partitions, *lanes)
            ready = sorted((since, p) for p, (since, _) in zip(partitions, looks, strict=True) if since >= 0)
            for _, partition in ready:
                [shown] = await self._run(scripts.LEASE, [partition], to_bytes(worker), span(lease_seconds), *lanes)
                if shown is not None:
                    self._seen(shown[0])
                    return told.read_lease(worker, partition, shown), 0.0
            if not ready:
                waits = [wait / 1_000_000 for _, wait in looks if wait >= 0]
                return None, min([*waits, _LOOK_AGAIN_SECONDS])

    async def _return(self, attempt: asyncio.Future[tuple[Lease | None, float]]) -> None:
        """Others need not wait until it lapses; if this fails, it does."""
        with suppress(StoreUnavailable):
            lease, _ = await attempt
            if lease is not None:
                base = self._keys.base(lease.partition)
                lane: list[Value] = [lease.kind, to_bytes(lease.lane), lease.fence]
                await self._work.run([(scripts.GIVE_BACK, base, [*self._head(), *lane])])

    async def renew(self, lease: Lease, *, lease_seconds: float = 6.0) -> Control:
        lane: list[Value] = [lease.kind, to_bytes(lease.lane), lease.fence]
        [signals] = await self._run(scripts.RENEW, [lease.partition], *lane, span(lease_seconds))
        if signals is None:
            raise _fenced(lease)
        return Control(tuple(decode(signal.decode()) for signal in signals))

    async def outbox(self, conversation: str) -> list[QueuedPart]:
        [shown] = await self._run(scripts.OUTBOX, [self.partition(conversation)], to_bytes(conversation))
        return told.read_parts(shown)

    # ───────────── records and logs ─────────────

    async def get(self, keys: Sequence[Key]) -> Snapshot:
        names: dict[str, list[str]] = {}
        for key in keys:
            if key.partition in PARTITIONS:
                names.setdefault(key.partition, []).append(key.name)
        partitions = names or {PARTITIONS[0]: []}
        answers = await self._run_each(
            scripts.GET, [(p, [len(wanted), *map(to_bytes, wanted)]) for p, wanted in partitions.items()]
        )
        records = {key: Record() for key in keys}
        for (partition, wanted), (_, shown) in zip(partitions.items(), answers, strict=True):
            for name, record in zip(wanted, shown, strict=True):
                records[Key(partition, name)] = told.read_record(*record)
        return Snapshot(records, self._seen(max(now for now, _ in answers)))

    async def scan(self, prefix: str) -> list[tuple[Key, Record]]:
        start = to_bytes(prefix)
        bounds = (b"[" + start, b"(" + start + b"\xff") if start else (b"-", b"+")
        answers = await self._run(scripts.SCAN, PARTITIONS, *bounds)
        found = [
            (Key(partition, told.text_of(name)), told.read_record(value, version))
            for partition, shown in zip(PARTITIONS, answers, strict=True)
            for name, value, version in shown
        ]
        return sorted(found, key=lambda item: item[0].name)

    async def read(self, log: Key, *, after: int = 0, last: int | None = None) -> list[Entry]:
        if log.partition not in PARTITIONS:
            self._client(self._work)
            return []
        most = -1 if last is None else max(last, 0)
        [(before, lines)] = await self._run(scripts.READ, [log.partition], to_bytes(log.name), after, most)
        entries = []
        for seq, line in enumerate(lines, before + 1):
            stamp, _, value = line.partition(b" ")
            entries.append(Entry(seq=seq, stamp=moment(int(stamp)), value=decode(value.decode())))
        return entries

    async def watch(self, log: Key, *, after: int = 0) -> AsyncIterator[Entry]:
        self._client(self._work)
        with self._news.following([self._keys.log(*log)]) as heard:
            while True:
                heard.clear()
                for entry in await self.read(log, after=after):
                    yield entry
                    after = entry.seq
                with suppress(TimeoutError):
                    await asyncio.wait_for(heard.wait(), _READ_AGAIN_SECONDS)

    # ───────────── transactions, timers, rates ─────────────

    async def commit(self, transaction: Transaction) -> datetime:
        told.check(transaction, self.partition)
        script = scripts.ADD if told.only_adds(transaction) else scripts.COMMIT
        [[verdict, *rest]] = await self._run(script, [transaction.partition], *told.operations(transaction))
        match verdict:
            case b"done":
                self._seen(rest[1])
                return moment(rest[0])
            case b"late":
                raise TooLate(f"it is {moment(rest[0])}, and the transaction was good until {transaction.not_after}")
            case b"fenced" if transaction.lease is not None:
                raise _fenced(transaction.lease)
            case _:
                raise Conflict(told.text_of(rest[0]))

    async def tick(self) -> float | None:
        answers = await self._run(scripts.DUE, PARTITIONS, _TIMERS)
        for partition, (timers, _) in zip(PARTITIONS, answers, strict=True):
            if timers:
                await self._ring(partition, timers)
        return min((wait / 1_000_000 for _, wait in answers if wait >= 0), default=None)

    async def _ring(self, partition: str, timers: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        sent: list[Value] = [len(timers)]
        for timer_id, due, held in timers:
            event = replace(incoming_from_text(held.decode()), stamp=moment(int(due)))
            sent += [timer_id, due, held]
            if self.partition(event.conversation) == partition:
                sent += [1, *told.event_arguments(event)]
            else:  # stored there first, under an id of its own, so that once is enough
                once = f"timer:{partition}:{told.text_of(timer_id)}:{int(due)}"
                event = replace(event, event_ids=(*event.event_ids, once), refusable=False)
                await self._run(
                    scripts.ACCEPT, [self.partition(event.conversation)], 0, 0, 1, 1, *told.event_arguments(event)
                )
                sent.append(0)
        await self._run(scripts.RING, [partition], *sent)

    async def take(self, cells: Sequence[Cell]) -> float:
        sent = [word for cell in cells for word in told.cell_arguments(cell)]
        call = (scripts.TAKE, self._keys.rates, [*self._head(), len(cells), *sent])
        [wait] = await self._track(self._client(self._work).run([call]))
        return float(wait) / 1_000_000

    # ───────────── dead letters, the service ─────────────

    async def dead(self) -> list[Dead]:
        answers = await self._run(scripts.DEAD, PARTITIONS)
        letters = sorted((letter for answer in answers for letter in answer), key=lambda letter: int(letter[0]))
        return [told.read_letter(letter) for letter in letters]

    async def replay(self, dead_id: str) -> bool:
        found = await self._run(scripts.LETTER, PARTITIONS, to_bytes(dead_id))
        for partition, held in zip(PARTITIONS, found, strict=True):
            if held is not None:
                becomes: list[Value] = ["nothing"]
                incoming, part, _ = dead_from_text(held.decode())
                if incoming is not None:
                    becomes = ["event", *told.event_arguments(incoming)]
                elif part is not None:
                    becomes = ["part", *told.part_arguments(part)]
                [was_there] = await self._run(scripts.EXHUME, [partition], to_bytes(dead_id), held, *becomes)
                return bool(was_there)
        return False

    async def drop(self, dead_id: str) -> bool:
        return any(await self._run(scripts.EXHUME, PARTITIONS, to_bytes(dead_id), "", "nothing"))

    async def stats(self) -> Stats:
        counts = await self._run(scripts.STATS, PARTITIONS)
        waiting, pointed, ready, leased, parked, parts, timers, dead = map(sum, list(zip(*counts, strict=True))[:8])
        ages = [(now - oldest) / 1_000_000 for *_, now, oldest in counts if oldest >= 0]
        return Stats(
            waiting=waiting,
            pointed=pointed,
            ready=ready,
            leased=leased,
            parked=parked,
            parts=parts,
            timers=timers,
            dead=dead,
            oldest_waiting_seconds=max(0.0, *ages) if ages else 0.0,
        )

    async def ping(self) -> None:
        await self._track(self._client(self._ack).command("PING"))

    # ───────────── calls ─────────────

    def _head(self) -> list[Value]:
        """What every script is told first."""
        return [self._offset, self._latest, self._keys.news]

    def _seen(self, micros: int) -> datetime:
        """A moment that somebody is told of."""
        self._latest = max(self._latest, micros)
        return moment(self._latest)

    def _client(self, client: Client) -> Client:
        if not self._open:
            raise StoreUnavailable("the store is not open")
        return client

    async def _run(self, script: Script, partitions: Sequence[str], *sent: Value) -> list[Any]:
        """One script in each of these partitions, in one round trip."""
        return await self._run_each(script, [(partition, sent) for partition in partitions])

    async def _run_each(self, script: Script, calls: Sequence[tuple[str, Sequence[Value]]]) -> list[Any]:
        head = self._head()
        answers: list[Any] = await self._track(
            self._client(self._work).run([(script, self._keys.base(p), [*head, *sent]) for p, sent in calls])
        )
        return answers

    async def _track(self, call: Coroutine[Any, Any, T]) -> T:
        """A call goes to its end though its caller gives up: a connection is not left in the middle of an answer."""
        running = asyncio.ensure_future(call)
        self._keep(running)
        return await asyncio.shield(running)

    def _keep(self, running: asyncio.Future[Any]) -> None:
        self._running.add(running)
        running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # who gave up does not ask


def _admitted(verdict: Verdict) -> list[int]:
    """Raises Overloaded."""
    if isinstance(verdict, int):
        raise Overloaded(f"{verdict} events wait, which is all that may: try again when some are dealt with")
    return verdict


def _fenced(lease: Lease) -> Fenced:
    return Fenced(f"the {lease.kind} lease of {lease.lane} is no longer held by {lease.worker}")
