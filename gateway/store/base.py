"""The protocol of a store, the only access to durable state.

A store knows records, logs, mailboxes, lanes, leases and timers, and does not interpret the content. The rules about
actions, sessions and budgets are in higher layers. Values are JSON. All stamps are of the store's own clock. The values
are in `gateway.store.types` and `gateway.store.transaction`, the errors in `gateway.store.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

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


class ConversationStore(Protocol):
    """The calls of conversations: events, leases, records, logs, timers and rates.

    Every call may raise StoreUnavailable.
    """

    offset_seconds: float
    """Seconds added to the store's clock: 0 in production, set by FakeClock. The offset moves stamps, deadlines, TTLs
    and timers. Leases use real time."""
    shared: bool
    """Several processes may use the store at once."""

    async def open(self) -> None:
        """Open the store. Raises StoreRefused if the store cannot be used in this state."""
        ...

    async def close(self) -> None:
        """Complete the calls in progress, and close the store."""
        ...

    def partition(self, conversation: str) -> str:
        """Return the partition of a conversation, two digits."""
        ...

    async def now(self) -> datetime:
        """Return the store's clock, in UTC. The clock never goes backwards."""
        ...

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        """Store events. Return for each event True if new, False for a twin, also of an event in the same batch.

        On return, the events are durable. Only a new `refusable` event is refused. Raises Overloaded at the limit of
        all waiting events, and the subclass MailboxFull at the limit of the conversation alone (`conversation_limit`).
        Earlier events of the batch count towards both limits.
        """
        ...

    async def pending_decisions(
        self,
        conversation: str | None = None,
        *,
        older_than_seconds: float = 0.0,
        limit: int = 100,
    ) -> list[Waiting]:
        """Return the head of the decision lane: events with a pointer, of a conversation or of all conversations."""
        ...

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
        """Lease the longest-ready lane. Return None if no lane was ready within `wait_seconds`.

        `only` names a single conversation or action to lease. Without `only`, the outboxes of this `pool` alone are
        leased, so a slow platform does not delay the others.

        A lane is ready when work waits, the due time has come, and no unlapsed lease holds the lane. The work of a turn
        is (a) a waking event without a pointer, with the events before, or (b) a note of the age
        `FOLDED_AFTER_SECONDS`. The work of a memory lane is an event. The work of an outbox is a part. The work of an
        action is an id in `Transaction.actions`. A cancelled caller holds no lease: the next caller can lease the lane.
        """
        ...

    async def renew(self, lease: Lease, *, lease_seconds: float = 6.0) -> Control:
        """Renew the lease. Return the signals since the lease began. Raises Fenced for a lost lease."""
        ...

    async def get(self, keys: Sequence[Key]) -> Snapshot:
        """Return these records, read at the same moment."""
        ...

    async def read(
        self, log: Key, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> list[LogEntry]:
        """Return the entries of a log after a sequence number, in order: at most the `first` or the `last`, or all."""
        ...

    def watch(self, log: Key, *, after: int = 0) -> AsyncGenerator[LogEntry, None]:
        """Yield the entries of a log after a sequence number, for ever, each after the commit.

        Raises StoreUnavailable when the store closes.
        """
        ...

    async def outbox(self, conversation: str) -> list[QueuedPart]:
        """Return the unsent parts of a conversation, in order."""
        ...

    async def has_work(self, conversation: str) -> bool:
        """Return True if a waking event without a pointer, or an unsent part, waits in a conversation.

        Leased work counts too.
        """
        ...

    async def commit(self, transaction: Transaction) -> Committed:
        """Commit the transaction: all writes or none. A cancelled caller holds no chained lease.

        Raises Conflict, Fenced, TooLate, or StoreUnavailable (outcome unknown: read, do not repeat). Raises ValueError
        for an inconsistent transaction: of another partition, `finish` without a lease, steps or `collect_until` of no
        turn, `chain` without `finish`.
        """
        ...

    async def give_back(self, transaction: Transaction) -> None:
        """Release the chained lease of a commit after StoreUnavailable, if the commit took the lease.

        The next lease of the lane has the same content.
        """
        ...

    async def run_timers(self) -> float | None:
        """Accept the events of due timers. Return the seconds to the next timer, or None.

        Any process may make this call.
        """
        ...

    async def acquire(self, cells: Sequence[Cell]) -> float:
        """Take the cost of every cell, or of none. Return 0 if taken, else the seconds to wait.

        A taken cost is never given back.
        """
        ...

    async def spent(self, names: Sequence[str]) -> list[Mapping[str, int]]:
        """Return the counts under these names, summed over all partitions. A count without additions is empty.

        Amounts are added by `Transaction.spends`.
        """
        ...

    async def has_headroom(self) -> bool:
        """Return True if disk or memory is left for new work, as measured within the last second.

        Without headroom, only begun work is completed: new messages are refused and no action is launched.
        """
        ...

    async def ping(self) -> None:
        """Raise StoreUnavailable if the store does not answer or cannot be written to."""
        ...


class OperatorStore(Protocol):
    """The calls of operators, and of code for reading or removing personal data. Many scan the whole store.

    Every call may raise StoreUnavailable.
    """

    @property
    def clock_ahead_seconds(self) -> float:
        """Seconds of the machine's clock ahead of the latest moment in the store, at the opening of the store.

        0 for less than a day, and after `trust_clock`. Above 0, the store's clock continues from the latest stored
        moment. So a wrong machine clock expires and removes no record.
        """
        ...

    def trust_clock(self) -> None:
        """Follow the machine's clock although far ahead: the store was unused for the time between."""
        ...

    @property
    def partitions(self) -> Sequence[str]:
        """All partitions."""
        ...

    async def scan(self, prefix: str) -> list[tuple[Key, Record]]:
        """Return the records of all partitions with this name prefix, ordered by name."""
        ...

    async def logs(self, prefix: str, *, before: datetime | None = None) -> list[Key]:
        """Return the non-empty logs of all partitions with this name prefix, in no order.

        `before`: only logs with a first line older than this moment of the store's clock. All names are scanned, in
        many short calls: for work done a few times a day.
        """
        ...

    async def mailboxes(self, most: int = 20) -> list[Mailbox]:
        """Return the conversations with the most waiting events, the fullest first, for an operator."""
        ...

    async def mailbox(self, conversation: str, limit: int = 100) -> list[Waiting]:
        """Return the waiting events and notes of a conversation, in order, for an operator."""
        ...

    async def is_held(self, conversation: str) -> bool:
        """Return True if a lease that has not lapsed holds the turn of a conversation."""
        ...

    async def timers(self, conversation: str | None = None) -> list[Timer]:
        """Return the timers with an event of a conversation, or all timers, in no order. All timers are scanned.

        Unreadable timers are left out.
        """
        ...

    async def forget(self, forgotten: Forgotten) -> Mapping[str, int]:
        """Remove this data, with the names. Return the counts of the removed items.

        The counts are ``records``, ``lines``, ``events``, ``parts``, ``timers``, ``dead letters`` and ``counts``,
        without those of 0. Raises Conflict while a lane is leased, before any removal in the lane's partition. All
        names in the store are scanned. After a StoreUnavailable some partitions may be done, and a repeat does the
        others. Versions of the records begin anew.
        """
        ...

    async def all_spent(self, prefix: str) -> dict[str, Mapping[str, int]]:
        """Return the counts with this name prefix, by name, summed over all partitions."""
        ...

    async def dead_letters(self, *, after: int = 0, limit: int | None = None) -> list[Dead]:
        """Return dead letters after a `seq`, the oldest first; at most `limit`.

        Reading is paged: other callers wait for a single page at most.
        """
        ...

    async def drop_all(self, reason: str | None = None) -> int:
        """Delete all dead letters, or the letters with `reason` within the reason. Return the number."""
        ...

    async def replay(self, dead_id: str) -> bool:
        """Put the event or part of a dead letter back. Return False if there is no dead letter of this id."""
        ...

    async def drop(self, dead_id: str) -> bool:
        """Delete a dead letter. Return False if there is none of this id."""
        ...

    async def stats(self) -> Stats:
        """Return the counts of the store."""
        ...


class Store(ConversationStore, OperatorStore, Protocol):
    """The durable state of a bot."""
