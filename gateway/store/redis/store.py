"""The store that many processes share."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from gateway.store.clock_steps import elapsed_ns
from gateway.store.codec import dead_from_text, decode, decode_all, decode_loosely, incoming_from_text, moment, span
from gateway.store.errors import Conflict, Fenced, StoreUnavailable, TooLate
from gateway.store.form import FORM, NewerForm
from gateway.store.redis import scripts, wire
from gateway.store.redis.client import Value
from gateway.store.redis.connection import Server
from gateway.store.redis.ingest import RedisBatcher
from gateway.store.redis.keys import PARTITIONS, partition_of, to_bytes
from gateway.store.redis.leases import Leases, Wanted
from gateway.store.transaction import Committed, Transaction
from gateway.store.types import (
    Cell,
    Control,
    Dead,
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

__all__ = ["RedisStore"]

_READ_AGAIN_SECONDS: Final = 5.0
_TIMERS: Final = 500
_PAGE: Final = 500
"""So many events are looked at in one call: it stays short."""
"""At most so many of a partition fall due at once."""


class _Parts(NamedTuple):
    """What an open store works with."""

    server: Server
    batcher: RedisBatcher
    leases: Leases


class RedisStore:
    """A store on a Redis server of version 7.0 or later; see `gateway.store.base.Store`.

    `url` is ``redis://`` or ``rediss://``; all keys begin with `prefix`. A new message is refused while about
    `max_waiting` events wait, whoever took them in: each process counts once a second what waits in all partitions; and
    while a tenth of that waits in its conversation.
    What a platform waits for (`accept`, `ping`) is given up after `ack_seconds`. `open` raises StoreRefused for a
    server that cannot keep what it is given.
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
    ) -> None:
        self._url = url
        self._prefix = prefix
        self._max_waiting = max_waiting
        self._ack_seconds = ack_seconds
        self._elapsed_ns = elapsed_ns
        self._offset = 0
        self._open: _Parts | None = None
        self._ranks = dict.fromkeys(PARTITIONS, 0)
        """Where to go on tidying each partition that is not tidy yet."""
        self._undecided_none = (-math.inf, 0)
        """When it was last seen that no decision waited (on this machine's clock), and the offset then."""

    @property
    def offset_seconds(self) -> float:
        """Added to the store's clock: 0 in production, moved by FakeClock."""
        return self._offset / 1_000_000

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._offset = span(seconds)
        if self._open is not None:
            self._server.offset = self._offset
            self._server.notifications.tell_all()

    async def open(self) -> None:
        """Connect, and look whether the server can be trusted. Raises StoreRefused and StoreUnavailable."""
        if self._open is not None:
            return
        server = Server(self._url, self._prefix, self._ack_seconds, self._elapsed_ns)
        server.offset = self._offset
        await server.open()
        batcher = RedisBatcher(server, self.partition, self._max_waiting)
        self._open = _Parts(server, batcher, Leases(server, self.partition))

    async def close(self) -> None:
        """Do what was asked before, refuse what waits for a lease or a log line, and disconnect."""
        parts, self._open = self._open, None
        if parts is not None:
            await parts.batcher.finished()
            await parts.server.close()

    def partition(self, conversation: str) -> str:
        return partition_of(conversation)

    async def now(self) -> datetime:
        return await self._server.now()

    # ───────────── in ─────────────

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        return await self._parts.batcher.accept(events)

    async def pending_decisions(
        self,
        conversation: str | None = None,
        *,
        older_than_seconds: float = 0.0,
        limit: int = 100,
        knows: int = FORM,
    ) -> list[Waiting]:
        at, offset = self._undecided_none
        if (
            conversation is None
            and knows == 1
            and offset == self._offset
            and time.monotonic() - at < older_than_seconds
        ):
            return []  # there was none then, and what has come since is not so old yet
        which: list[Value] = [0] if conversation is None else [1, to_bytes(conversation)]
        partitions = PARTITIONS if conversation is None else [self.partition(conversation)]
        found = await self._server.run(
            scripts.PENDING_DECISIONS, partitions, *which, span(older_than_seconds), limit, knows
        )
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
        knows: int = FORM,
        prefetch: Prefetch = Prefetch(),  # noqa: B008 - it cannot be changed
    ) -> Lease | None:
        wanted = Wanted(tuple(kinds), only, pool, knows)
        return await self._parts.leases.take(worker, wanted, prefetch, wait_seconds, lease_seconds)

    async def renew(self, lease: Lease, *, lease_seconds: float = 6.0) -> Control:
        which = wire.lease_arguments(lease)
        [signals] = await self._server.run(scripts.RENEW, [lease.partition], *which, span(lease_seconds))
        if signals is None:
            raise _fenced(lease)
        return Control(tuple(decode(signal.decode()) for signal in signals))

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

    async def read(self, log: Key, *, after: int = 0, last: int | None = None) -> list[LogEntry]:
        if log.partition not in PARTITIONS:
            return []
        most = -1 if last is None else max(last, 0)
        [(before, lines)] = await self._server.run(scripts.READ, [log.partition], to_bytes(log.name), after, most)
        told = [line.partition(b" ") for line in lines]
        values = decode_all(text.decode() for _, _, text in told)
        return [
            LogEntry(seq=seq, stamp=moment(int(stamp)), value=value)
            for seq, (stamp, _, _), value in zip(range(before + 1, before + 1 + len(told)), told, values, strict=True)
        ]

    async def watch(self, log: Key, *, after: int = 0) -> AsyncIterator[LogEntry]:
        with self._server.notifications.following_log(self._server.keys.log(*log)) as heard:
            while True:
                heard.take()
                for entry in await self.read(log, after=after):
                    yield entry
                    after = entry.seq
                with suppress(TimeoutError):
                    async with asyncio.timeout(_READ_AGAIN_SECONDS):
                        await heard.wait()

    # ───────────── transactions, timers, rates ─────────────

    async def commit(self, transaction: Transaction) -> Committed:
        wire.check(transaction, self.partition)
        if transaction.chain is None:
            return await self._commit(transaction)
        return await self._parts.leases.kept(self._commit(transaction), lambda committed: committed.lease)

    async def _commit(self, transaction: Transaction) -> Committed:
        sure_from = time.monotonic()
        script = scripts.ADD if wire.only_adds(transaction) else scripts.COMMIT
        [[verdict, *rest]] = await self._server.run(script, [transaction.partition], *wire.operations(transaction))
        match verdict:
            case b"done":
                self._server.seen(rest[1])
                return Committed(moment(rest[0]), self._leased(transaction, rest[2], sure_from))
            case b"late":
                raise TooLate(f"it is {moment(rest[0])}, and the transaction was good until {transaction.not_after}")
            case b"fenced" if transaction.lease is not None:
                raise _fenced(transaction.lease)
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
            whose = chain.kind, to_bytes(chain.lane), to_bytes(transaction.next_worker), ""
            await self._server.run(scripts.GIVE_BACK, [transaction.partition], *whose)

    async def run_timers(self) -> float | None:
        await self._server.look_for_losses()
        await self._server.keep_clock()
        began = time.monotonic(), self._offset
        await self._tidy()
        answers = await self._server.run(scripts.DUE_TIMERS, PARTITIONS, _TIMERS)
        if not any(pointed for *_, pointed in answers):
            self._undecided_none = began
        for partition, (timers, *_) in zip(PARTITIONS, answers, strict=True):
            if timers:
                await self._fire_timers(partition, timers)
        return min((wait / 1_000_000 for _, wait, _ in answers if wait >= 0), default=None)

    async def _tidy(self) -> None:
        """Take notes out of what counts, which a release before they were told apart has put there: a page at a time,
        once in the life of a process."""
        if self._ranks:
            places = [(self._server.keys.base(partition), (rank, _PAGE)) for partition, rank in self._ranks.items()]
            found = zip(self._ranks, await self._server.run_at(scripts.TIDY, places), strict=True)
            self._ranks = {partition: int(rank) for partition, rank in found if int(rank) >= 0}

    async def _fire_timers(self, partition: str, timers: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        sent: list[Any] = [len(timers)]
        for timer_id, due, held in timers:
            try:
                event = replace(incoming_from_text(held.decode()), stamp=moment(int(due)))
            except NewerForm:  # a worker of that release will
                sent[0] -= 1
                continue
            sent += [timer_id, due, held]
            if self.partition(event.conversation) == partition:
                sent += [1, *wire.event_arguments(event)]
            else:  # stored there first, under an id of its own, so that once is enough
                once = f"timer:{partition}:{wire.text_of(timer_id)}:{int(due)}"
                event = replace(event, event_ids=(*event.event_ids, once), refusable=False)
                alone = [0, 0, 0, 1, 1, *wire.event_arguments(event)]
                await self._server.run(scripts.ACCEPT, [self.partition(event.conversation)], *alone)
                sent.append(0)
        await self._server.run(scripts.FIRE_TIMERS, [partition], *sent)

    async def acquire(self, cells: Sequence[Cell]) -> float:
        sent = [word for cell in cells for word in wire.cell_arguments(cell)]
        [wait] = await self._server.run_at(scripts.ACQUIRE, [(self._server.keys.rates, [len(cells), *sent])])
        return float(wait) / 1_000_000

    # ───────────── dead letters, the service ─────────────

    async def dead_letters(self, *, after: int = 0, limit: int | None = None) -> list[Dead]:
        most = _PAGE if limit is None else min(_PAGE, limit)
        behind = dict.fromkeys(PARTITIONS, after) if most else {}
        found: list[Dead] = []
        while behind:
            places = [(self._server.keys.base(partition), (place, most)) for partition, place in behind.items()]
            pages = dict(zip(behind, await self._server.run_at(scripts.DEAD_LETTERS, places), strict=True))
            found += [wire.read_letter(letter) for page in pages.values() for letter in page]
            behind = {partition: int(page[-1][0]) for partition, page in pages.items() if len(page) == most}
            read_to = min(behind.values(), default=None)  # what lies behind it has not been read everywhere
            if limit is not None and read_to is not None and sum(_place(dead) <= read_to for dead in found) >= limit:
                break
        return sorted(found, key=_place)[:limit]

    async def drop_all(self, reason: str | None = None) -> int:
        behind: dict[str, Value] = dict.fromkeys(PARTITIONS, 0)
        dropped = 0
        while behind:
            sent = "" if reason is None else to_bytes(reason)
            places = [(self._server.keys.base(partition), (place, _PAGE, sent)) for partition, place in behind.items()]
            answers = dict(zip(behind, await self._server.run_at(scripts.DROP_SOME, places), strict=True))
            dropped += sum(many for many, _ in answers.values())
            behind = {partition: place for partition, (_, place) in answers.items() if place != b"-1"}
        return dropped

    async def replay(self, dead_id: str) -> bool:
        found = await self._server.run(scripts.GET_DEAD, PARTITIONS, to_bytes(dead_id))
        for partition, held in zip(PARTITIONS, found, strict=True):
            if held is not None:
                becomes: list[Value] = ["nothing"]
                incoming, part, _ = dead_from_text(held.decode())
                if incoming is not None:
                    becomes = ["event", *wire.event_arguments(incoming)]
                elif part is not None:
                    becomes = ["part", *wire.part_arguments(part)]
                [was_there] = await self._server.run(
                    scripts.REPLAY_DEAD, [partition], to_bytes(dead_id), held, *becomes
                )
                return bool(was_there)
        return False

    async def drop(self, dead_id: str) -> bool:
        return any(await self._server.run(scripts.REPLAY_DEAD, PARTITIONS, to_bytes(dead_id), "", "nothing"))

    async def stats(self) -> Stats:
        counts = await self._server.run(scripts.STATS, PARTITIONS)
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


def _fenced(lease: Lease) -> Fenced:
    return Fenced(f"the {lease.kind} lease of {lease.lane} is no longer held by {lease.worker}")


def _place(dead: Dead) -> int:
    return dead.seq or 0
