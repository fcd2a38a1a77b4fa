"""The store on Redis, which several processes share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from gateway.store.clock_steps import elapsed_ns, elapsed_seconds
from gateway.store.codec import decode_all, decode_loosely, micros, moment, span
from gateway.store.errors import Conflict, Fenced, StoreUnavailable, TooLate
from gateway.store.redis import dead_letters, forgetting, scripts, spent, wire
from gateway.store.redis.client import Value
from gateway.store.redis.connection import RedisTimings, Server
from gateway.store.redis.ingest import RedisBatcher
from gateway.store.redis.keys import PARTITIONS, partition_of, to_bytes
from gateway.store.redis.leases import LaneQuery, Leases
from gateway.store.redis.timers import RedisTimers
from gateway.store.transaction import Committed, Timer, Transaction
from gateway.store.types import (
    TIMERS_COUNTED,
    Cell,
    Control,
    Dead,
    Forgotten,
    Incoming,
    Key,
    Kind,
    Lease,
    LogEntry,
    Mailbox,
    Prefetch,
    QueuedPart,
    Record,
    Snapshot,
    Stats,
    Waiting,
)

_READ_AGAIN_SECONDS: Final = 5.0
_KEYS_SCANNED: Final = 1000
"""The most keys, of any kind, scanned by the server in a call."""
_PAGE: Final = 500
"""The most events or records of a partition read in a call, to keep calls short."""


class _Parts(NamedTuple):
    """The objects of an open store."""

    server: Server
    batcher: RedisBatcher
    leases: Leases


class RedisStore:
    """A store on a Redis server of version 7.0 or later; see `gateway.store.base.Store`.

    `url` is ``redis://`` or ``rediss://``. All keys begin with `prefix`. A new message is refused while about
    `max_waiting` events wait in all partitions, by a count made once a second in each process, or while a tenth of this
    number waits in the conversation. Calls with a waiting platform (`accept`, `ping`) fail after `ack_seconds`. `open`
    raises StoreRefused for a server that may lose its data.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "askfirst",
        max_waiting: int = 10_000,
        ack_seconds: float = 0.25,
        elapsed_ns: Callable[[], int] = elapsed_ns,
        timings: RedisTimings | None = None,
    ) -> None:
        self._url = url
        self._prefix = prefix
        self._max_waiting = max_waiting
        self._ack_seconds = ack_seconds
        self._elapsed_ns = elapsed_ns
        self._timings = timings or RedisTimings()
        self._offset = 0
        self._open: _Parts | None = None
        self._timers = RedisTimers(self.partition)

    @property
    def offset_seconds(self) -> float:
        """Seconds added to the store's clock: 0 in production, set by FakeClock."""
        return self._offset / 1_000_000

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._offset = span(seconds)
        if self._open is not None:
            self._server.offset = self._offset
            self._server.notifications.notify_all()

    async def open(self) -> None:
        """Connect to the server, and check the settings. Raises StoreRefused and StoreUnavailable."""
        if self._open is not None:
            return
        server = Server(self._url, self._prefix, self._ack_seconds, self._elapsed_ns, self._timings)
        server.offset = self._offset
        await server.open()
        batcher = RedisBatcher(server, self.partition, self._max_waiting, self._timings)
        self._open = _Parts(server, batcher, Leases(server, self.partition, self._timings.look_again_seconds))

    async def close(self) -> None:
        """Complete the calls in progress, end the waits for leases and log lines, and disconnect."""
        parts, self._open = self._open, None
        if parts is not None:
            await parts.batcher.drain()
            await parts.server.close()

    def partition(self, conversation: str) -> str:
        return partition_of(conversation)

    @property
    def partitions(self) -> Sequence[str]:
        return PARTITIONS

    async def now(self) -> datetime:
        return await self._server.now()

    # ───────────── mailboxes ─────────────

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        return await self._parts.batcher.accept(events)

    async def pending_decisions(
        self,
        conversation: str | None = None,
        *,
        older_than_seconds: float = 0.0,
        limit: int = 100,
    ) -> list[Waiting]:
        if conversation is None and self._timers.had_no_decision(older_than_seconds, self._offset):
            return []  # decisions that came since then are not old enough yet
        which: list[Value] = [0] if conversation is None else [1, to_bytes(conversation)]
        partitions = PARTITIONS if conversation is None else [self.partition(conversation)]
        found = await self._server.run(scripts.PENDING_DECISIONS, partitions, *which, span(older_than_seconds), limit)
        events = [wire.read_waiting(event) for answer in found for event in answer]
        return sorted(events, key=lambda event: event.seq)[:limit]

    # ───────────── lanes ─────────────

    async def lease(
        self,
        worker: str,
        kinds: Sequence[Kind],
        *,
        only: str | None = None,
        pool: str = "",
        wait_seconds: float = 0.0,
        lease_seconds: float = 6.0,
        prefetch: Prefetch = Prefetch(),  # noqa: B008 - it is immutable
    ) -> Lease | None:
        query = LaneQuery(tuple(kinds), only, pool)
        return await self._parts.leases.take(worker, query, prefetch, wait_seconds, lease_seconds)

    async def renew(self, lease: Lease, *, lease_seconds: float = 6.0) -> Control:
        which = wire.lease_arguments(lease)
        [signals] = await self._server.run(scripts.RENEW, [lease.partition], *which, span(lease_seconds))
        if signals is None:
            raise Fenced.by_lane(lease.kind, lease.lane, lease.worker)
        return Control(tuple(map(decode_loosely, signals)))

    @property
    def clock_ahead_seconds(self) -> float:
        return 0.0 if self._open is None else self._server.doubted / 1_000_000

    def trust_clock(self) -> None:
        if self._open is not None:
            self._server.trust_clock()

    async def mailboxes(self, most: int = 20) -> list[Mailbox]:
        counts: dict[str, tuple[int, int]] = {}
        ranks = dict.fromkeys(PARTITIONS, 0)
        while ranks:
            places = [(self._server.keys.base(partition), (rank, _PAGE)) for partition, rank in ranks.items()]
            pages = dict(zip(ranks, await self._server.run_at(scripts.MAILBOXES, places), strict=True))
            for name, stamp in (each for page in pages.values() for each in page):
                count, oldest = counts.get(wire.text_of(name), (0, int(stamp)))
                counts[wire.text_of(name)] = count + 1, min(oldest, int(stamp))
            ranks = {partition: ranks[partition] + _PAGE for partition, page in pages.items() if len(page) == _PAGE}
        fullest = sorted(counts.items(), key=lambda item: (-item[1][0], item[0]))[:most]
        return [Mailbox(conversation, count, moment(oldest)) for conversation, (count, oldest) in fullest]

    async def mailbox(self, conversation: str, limit: int = 100) -> list[Waiting]:
        partitions = [self.partition(conversation)]
        [shown] = await self._server.run(scripts.IN_MAILBOX, partitions, to_bytes(conversation), limit)
        return [wire.read_waiting(event) for event in shown]

    async def outbox(self, conversation: str) -> list[QueuedPart]:
        [shown] = await self._server.run(scripts.OUTBOX, [self.partition(conversation)], to_bytes(conversation))
        return wire.read_parts(shown)

    async def has_work(self, conversation: str) -> bool:
        [found] = await self._server.run(scripts.HAS_WORK, [self.partition(conversation)], to_bytes(conversation))
        return bool(found)

    async def is_held(self, conversation: str) -> bool:
        [found] = await self._server.run(scripts.IS_HELD, [self.partition(conversation)], to_bytes(conversation))
        return bool(found)

    # ───────────── records and logs ─────────────

    async def get(self, keys: Sequence[Key]) -> Snapshot:
        names: dict[str, list[str]] = {}
        for key in keys:
            if key.partition in PARTITIONS:
                names.setdefault(key.partition, []).append(key.name)
        partitions = names or {PARTITIONS[0]: []}
        answers = await self._server.run_at(
            scripts.GET,
            [(self._server.keys.base(p), [len(wanted), *map(to_bytes, wanted)]) for p, wanted in partitions.items()],
        )
        records = {key: Record() for key in keys}
        for (partition, wanted), (_, shown) in zip(partitions.items(), answers, strict=True):
            for name, record in zip(wanted, shown, strict=True):
                records[Key(partition, name)] = wire.read_record(*record)
        return Snapshot(records, self._server.seen(max(now for now, _ in answers)))

    async def scan(self, prefix: str) -> list[tuple[Key, Record]]:
        start = to_bytes(prefix)
        bounds = (b"[" + start, b"(" + start + b"\xff") if start else (b"-", b"+")
        firsts = dict.fromkeys(PARTITIONS, bounds[0])
        found: list[tuple[Key, Record]] = []
        while firsts:
            places = [(self._server.keys.base(p), (first, bounds[1], _PAGE)) for p, first in firsts.items()]
            answers = dict(zip(firsts, await self._server.run_at(scripts.SCAN, places), strict=True))
            found += [
                (Key(partition, wire.text_of(name)), Record(decode_loosely(value), version))
                for partition, (shown, _) in answers.items()
                for name, value, version in shown
            ]
            firsts = {partition: b"(" + last for partition, (_, last) in answers.items() if last}
        return sorted(found, key=lambda item: item[0].name)

    async def read(
        self, log: Key, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> list[LogEntry]:
        if log.partition not in PARTITIONS:
            return []
        most = [-1 if limit is None else max(limit, 0) for limit in (first, last)]
        [(before, lines)] = await self._server.run(scripts.READ, [log.partition], to_bytes(log.name), after, *most)
        parts = [line.partition(b" ") for line in lines]
        values = decode_all([text for _, _, text in parts])
        return [
            LogEntry(seq=seq, stamp=moment(int(stamp)), value=value)
            for seq, (stamp, _, _), value in zip(range(before + 1, before + 1 + len(parts)), parts, values, strict=True)
        ]

    async def logs(self, prefix: str, *, before: datetime | None = None) -> list[Key]:
        found: set[Key] = set()
        async for page in _log_pages(self._server, prefix):
            found |= page if before is None else await _begun(self._server, page, micros(before))
        return list(found)

    async def watch(self, log: Key, *, after: int = 0) -> AsyncGenerator[LogEntry, None]:
        with self._server.notifications.subscribed_to_log(self._server.keys.log(*log)) as subscription:
            while True:
                subscription.take()
                for entry in await self.read(log, after=after):
                    yield entry
                    after = entry.seq
                with suppress(TimeoutError):
                    async with asyncio.timeout(_READ_AGAIN_SECONDS):
                        await subscription.wait()

    # ───────────── transactions, timers, rates ─────────────

    async def commit(self, transaction: Transaction) -> Committed:
        wire.check(transaction, self.partition)
        if transaction.chain is None:
            return await self._commit(transaction)
        return await self._parts.leases.kept(self._commit(transaction), lambda committed: committed.lease)

    async def _commit(self, transaction: Transaction) -> Committed:
        sure_from = elapsed_seconds()
        script = scripts.ADD if wire.only_adds(transaction) else scripts.COMMIT
        [[verdict, *rest]] = await self._server.run(
            script, [transaction.partition], *wire.operations(transaction, self.partition)
        )
        match verdict:
            case b"done":
                self._server.wrote(transaction.partition, rest[1])
                if wire.leaves(transaction, self.partition):
                    with suppress(StoreUnavailable):  # any process hands it over later
                        await self._timers.fire(self._server, transaction.partition)
                return Committed(moment(rest[0]), self._leased(transaction, rest[2], sure_from))
            case b"late":
                raise TooLate.by_clock(moment(rest[0]), transaction.not_after)
            case b"fenced" if (lease := transaction.lease) is not None:
                raise Fenced.by_lane(lease.kind, lease.lane, lease.worker)
            case _:
                raise Conflict(wire.text_of(rest[0]))

    def _leased(self, transaction: Transaction, shown: list[Any] | None, sure_from: float) -> Lease | None:
        if shown is None or transaction.lease is None or transaction.chain is None:
            return None
        chain, partition = transaction.chain, transaction.partition
        worker, sure_until = transaction.next_worker, sure_from + chain.lease_seconds
        return wire.read_lease(worker, partition, shown, chain.prefetch, sure_until)

    async def give_back(self, transaction: Transaction) -> None:
        if (chain := transaction.chain) is not None:
            lane = chain.kind, to_bytes(chain.lane), to_bytes(transaction.next_worker), ""
            await self._server.run(scripts.GIVE_BACK, [transaction.partition], *lane)

    async def run_timers(self) -> float | None:
        return await self._timers.run(self._server)

    async def timers(self, conversation: str | None = None) -> list[Timer]:
        return await forgetting.timers(self._server, conversation)

    async def forget(self, forgotten: Forgotten) -> Mapping[str, int]:
        return await forgetting.forget(self._server, forgotten)

    async def acquire(self, cells: Sequence[Cell]) -> float:
        sent = [word for cell in cells for word in wire.cell_arguments(cell)]
        [wait] = await self._server.run_at(scripts.ACQUIRE, [(self._server.keys.rates, [len(cells), *sent])])
        return float(wait) / 1_000_000

    async def spent(self, names: Sequence[str]) -> list[Mapping[str, int]]:
        return await spent.read(self._server, names)

    async def all_spent(self, prefix: str) -> dict[str, Mapping[str, int]]:
        return await spent.read_all(self._server, prefix)

    # ───────────── dead letters, the service ─────────────

    async def dead_letters(self, *, after: int = 0, limit: int | None = None) -> list[Dead]:
        return await dead_letters.read(self._server, after, limit)

    async def drop_all(self, reason: str | None = None) -> int:
        return await dead_letters.drop_all(self._server, reason)

    async def replay(self, dead_id: str) -> bool:
        return await dead_letters.replay(self._server, dead_id)

    async def drop(self, dead_id: str) -> bool:
        return await dead_letters.drop(self._server, dead_id)

    async def stats(self) -> Stats:
        counts = await self._server.run(scripts.STATS, PARTITIONS, TIMERS_COUNTED)
        waiting, pointed, ready, leased, parked, parts, timers, dead = map(sum, list(zip(*counts, strict=True))[:8])
        ages = [(now - oldest) / 1_000_000 for *_, now, oldest, _ in counts if oldest >= 0]
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
            timer_kinds=wire.summed([kinds for *_, kinds in counts]),
        )

    async def has_headroom(self) -> bool:
        return await self._server.has_headroom()

    async def ping(self) -> None:
        await self._server.ping()

    @property
    def _parts(self) -> _Parts:
        if self._open is None:
            raise StoreUnavailable("the store is not open")
        return self._open

    @property
    def _server(self) -> Server:
        return self._parts.server


# ───────────── the names of logs, found by their keys: no append pays for an index of them ─────────────


async def _log_pages(server: Server, prefix: str) -> AsyncIterator[set[Key]]:
    """Yield all logs with this prefix, page by page; a log may come twice."""
    pattern, cursor = server.keys.logs(prefix), 0
    while True:
        cursor, names = await server.scan_keys(cursor, pattern, _KEYS_SCANNED, "list")
        if page := {key for name in names if (key := server.keys.log_of(name)) is not None}:
            yield page
        if not cursor:
            return


async def _begun(server: Server, logs: set[Key], before: int) -> set[Key]:
    """Return the logs with a stamp of the first line before this moment."""
    of: defaultdict[str, list[Key]] = defaultdict(list)
    for log in logs:
        of[log.partition].append(log)
    places: list[tuple[str, list[Value]]] = [
        (server.keys.base(partition), [len(keys), *(to_bytes(key.name) for key in keys)])
        for partition, keys in of.items()
    ]
    stamps = await server.run_at(scripts.STAMPS, places)
    return {
        key
        for keys, shown in zip(of.values(), stamps, strict=True)
        for key, stamp in zip(keys, shown, strict=True)
        if 0 <= stamp < before
    }
