"""The embedded store, on SQLite."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from gateway.store.clock_steps import elapsed_ns
from gateway.store.codec import micros, moment
from gateway.store.errors import Overloaded, StoreUnavailable
from gateway.store.sqlite import cleanup, forgetting, lanes, leases, mailbox, records, rows, spent, stats
from gateway.store.sqlite import transaction as transactions
from gateway.store.sqlite.clock import Clock, Woken
from gateway.store.sqlite.files import DiskSpace
from gateway.store.sqlite.jobs import Operation
from gateway.store.sqlite.writer import SqliteBatcher, SqliteTimings, Writer
from gateway.store.transaction import Committed, Timer, Transaction
from gateway.store.types import (
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

T = TypeVar("T")

_PAGE = 500
"""The most rows read in an operation. Other operations run between two."""
_DROPS = 100
"""The most dead letters deleted in an operation: each is overwritten in the file."""


class SqliteStore:
    """A store in a file, or in memory (":memory:"), owned by a single process; see `gateway.store.base.Store`.

    A new message is refused while `max_waiting` events wait, or a tenth of this number in the conversation. `open`
    raises StoreRefused for a file owned by another process, damaged, of another program, or of another form. The file
    is unchanged then.
    """

    shared = False

    def __init__(
        self,
        path: Path | str,
        *,
        max_waiting: int = 10_000,
        disk_space: DiskSpace | None = None,
        timings: SqliteTimings | None = None,
    ) -> None:
        self._path = None if str(path) == ":memory:" else Path(path)
        self._max_waiting = max_waiting
        self._disk_space = disk_space or DiskSpace(self._path)
        self._timings = timings or SqliteTimings()
        self._clock = Clock(time.time_ns, elapsed_ns)
        self._open: Writer | None = None
        self._batcher: SqliteBatcher | None = None
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @property
    def path(self) -> Path | None:
        """The file; None: in memory."""
        return self._path

    @property
    def offset_seconds(self) -> float:
        """Seconds added to the store's clock: 0 in production, set by FakeClock."""
        return self._clock.offset_seconds

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._clock.offset_seconds = seconds
        if self._open is not None:
            self._open.look_up()

    async def open(self) -> None:
        """Lock the file, and create the tables of a new file. Raises StoreRefused."""
        if self._open is None:
            writer = Writer(self._path, self._clock, self._timings)
            await writer.start()
            self._open = writer
            self._batcher = SqliteBatcher(writer, self._max_waiting, self._timings.gather_seconds)

    async def close(self) -> None:
        """Complete the calls in progress, end the waits for leases and log lines, and release the file."""
        writer, self._open = self._open, None
        batcher, self._batcher = self._batcher, None
        if writer is not None and batcher is not None:
            await batcher.drain()
            await writer.stop()
        self._announce(list(self._watchers))

    def partition(self, conversation: str) -> str:
        """Return the only partition of an embedded store."""
        return records.PARTITION

    @property
    def partitions(self) -> Sequence[str]:
        return (records.PARTITION,)

    async def now(self) -> datetime:
        return moment(self._clock.tick().now)

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        if self._batcher is None:
            raise StoreUnavailable("the store is not open")
        if not self._disk_space.seen and any(event.refusable for event in events) and not await self.has_headroom():
            raise Overloaded("the disk is nearly full, and what is left of it is for ending what was begun: make room")
        return await self._batcher.accept(events)

    async def pending_decisions(
        self,
        conversation: str | None = None,
        *,
        older_than_seconds: float = 0.0,
        limit: int = 100,
    ) -> list[Waiting]:
        return await self._do(lambda db, at: mailbox.pending_decisions(db, at, conversation, older_than_seconds, limit))

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
        kinds = tuple(kinds)
        topic: Hashable = (kinds, only, pool)

        def concerned(woken: Iterable[Woken]) -> bool:
            return any(
                kind in kinds and (only is not None or where is None or kind != "out" or where == pool)
                for kind, where in woken
            )

        future = self._writer.submit(
            lambda db, at: leases.lease(db, at, worker, kinds, only, pool, lease_seconds, prefetch),
            settled=self._keep_or_give_back,
            topic=topic,
            concerned=concerned,
            durable=False,
            wait_seconds=wait_seconds,
        )
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._keep_or_give_back(future.result(), received=False)
            elif self._open is not None:
                asked_before = self._open.submit(lambda db, at: None, durable=False)
                asked_before.add_done_callback(asyncio.Future.exception)
                await asyncio.wait([asked_before])  # until then the lease may still be taken, and must be given back
            raise

    def _keep_or_give_back(self, lease: Lease | None, received: bool) -> None:
        """Give back the lease of a cancelled caller, so other workers need not wait for the lapse."""
        if lease is not None and not received and self._open is not None:
            held = lease.kind, lease.lane, lease.worker, lease.fence
            returned = self._open.submit(lambda db, at: leases.give_back(db, at, *held), durable=False)
            returned.add_done_callback(asyncio.Future.exception)  # if it fails, the lease lapses

    async def renew(self, lease: Lease, *, lease_seconds: float = 6.0) -> Control:
        return await self._do(lambda db, at: leases.renew(db, at, lease, lease_seconds))

    async def get(self, keys: Sequence[Key]) -> Snapshot:
        keys = tuple(keys)
        return await self._do(lambda db, at: records.get(db, at, keys))

    async def scan(self, prefix: str) -> list[tuple[Key, Record]]:
        found: list[tuple[Key, Record]] = []
        first = prefix
        while page := await self._do(partial(records.scan, prefix=prefix, first=first, limit=_PAGE)):
            found += page
            if len(page) < _PAGE:
                break
            first = page[-1][0].name + "\0"
        return found

    async def read(
        self, log: Key, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> list[LogEntry]:
        return await self._do(lambda db, at: records.read(db, at, log, after, first, last))

    async def logs(self, prefix: str, *, before: datetime | None = None) -> list[Key]:
        found: list[Key] = []
        first, end = prefix, None if before is None else micros(before)
        while page := await self._do(partial(records.logs, prefix=prefix, first=first, limit=_PAGE)):
            found += [Key(records.PARTITION, name) for name, stamp in page if end is None or stamp < end]
            first = page[-1][0] + "\0"
        return found

    async def watch(self, log: Key, *, after: int = 0) -> AsyncGenerator[LogEntry, None]:
        news = asyncio.Event()
        self._watchers[log.name].add(news)
        try:
            while True:
                news.clear()
                for entry in await self.read(log, after=after):
                    yield entry
                    after = entry.seq
                await news.wait()
        finally:
            watchers = self._watchers[log.name]
            watchers.discard(news)
            if not watchers:
                del self._watchers[log.name]

    def _announce(self, logs: Sequence[str]) -> None:
        for log in logs:
            for news in self._watchers.get(log, ()):
                news.set()

    @property
    def clock_ahead_seconds(self) -> float:
        return self._clock.doubted_seconds

    def trust_clock(self) -> None:
        self._clock.trust()

    async def mailboxes(self, most: int = 20) -> list[Mailbox]:
        return await self._do(lambda db, at: mailbox.mailboxes(db, at, most))

    async def mailbox(self, conversation: str, limit: int = 100) -> list[Waiting]:
        return await self._do(lambda db, at: mailbox.mailbox(db, at, conversation, limit))

    async def outbox(self, conversation: str) -> list[QueuedPart]:
        return await self._do(lambda db, at: rows.outbox(db, conversation))

    async def has_work(self, conversation: str) -> bool:
        return await self._do(lambda db, at: any(lanes.has_work(db, kind, conversation) for kind in ("turn", "out")))

    async def is_held(self, conversation: str) -> bool:
        return await self._do(lambda db, at: leases.is_held(db, at, conversation))

    async def commit(self, transaction: Transaction) -> Committed:
        transactions.check(transaction)

        def settled(committed: Committed, received: bool) -> None:
            self._announce([log for log, _ in transaction.appends])
            self._keep_or_give_back(committed.lease, received)

        future = self._writer.submit(lambda db, at: transactions.apply(db, at, transaction), settled=settled)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._keep_or_give_back(future.result().lease, received=False)
            raise

    async def give_back(self, transaction: Transaction) -> None:
        if (chain := transaction.chain) is not None:
            await self._do(lambda db, at: leases.give_back(db, at, chain.kind, chain.lane, transaction.next_worker))

    async def run_timers(self) -> float | None:
        return await self._do(mailbox.run_timers, durable=True)

    async def timers(self, conversation: str | None = None) -> list[Timer]:
        return await self._do(partial(mailbox.timers, conversation=conversation))

    async def forget(self, forgotten: Forgotten) -> Mapping[str, int]:
        return await self._do(partial(forgetting.forget, forgotten=forgotten), durable=True)

    async def acquire(self, cells: Sequence[Cell]) -> float:
        cells = tuple(cells)
        return await self._do(lambda db, at: records.acquire(db, at, cells))

    async def spent(self, names: Sequence[str]) -> list[Mapping[str, int]]:
        names = tuple(names)
        return await self._do(lambda db, at: spent.read(db, at, names))

    async def all_spent(self, prefix: str) -> dict[str, Mapping[str, int]]:
        found: dict[str, Mapping[str, int]] = {}
        after = ""
        while page := await self._do(partial(spent.page, prefix=prefix, after=after, limit=_PAGE)):
            found |= page
            after = page[-1][0]
        return found

    async def dead_letters(self, *, after: int = 0, limit: int | None = None) -> list[Dead]:
        found: list[Dead] = []
        while limit is None or len(found) < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = await self._do(partial(mailbox.dead_letters, after=after, limit=most))
            found += page
            if len(page) < most:
                break
            after = page[-1].seq or 0
        return found

    async def drop_all(self, reason: str | None = None) -> int:
        dropped = 0
        while gone := await self._do(partial(mailbox.drop_some, reason=reason, limit=_DROPS), durable=True):
            dropped += gone
        return dropped

    async def replay(self, dead_id: str) -> bool:
        return await self._do(partial(mailbox.replay, dead_id=dead_id), durable=True)

    async def drop(self, dead_id: str) -> bool:
        return await self._do(partial(mailbox.drop, dead_id=dead_id), durable=True)

    async def scrub(self, *, anew: bool = False) -> None:
        await self._writer.submit(partial(cleanup.scrub, anew=anew), alone=True)

    async def stats(self) -> Stats:
        return await self._do(stats.stats)

    async def has_headroom(self) -> bool:
        return await self._disk_space.enough()

    async def ping(self) -> None:
        await self._do(cleanup.set_high_water, durable=True)

    @property
    def _writer(self) -> Writer:
        if self._open is None:
            raise StoreUnavailable("the store is not open")
        return self._open

    async def _do(self, run: Operation[T], *, durable: bool = False) -> T:
        return await self._writer.submit(run, durable=durable)
