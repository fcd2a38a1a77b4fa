"""The protocol of a store: all durable state is read and written through it.

A store knows records, logs, mailboxes, lanes, leases and timers, and does not interpret their content. The rules about
actions, sessions and budgets are above it. Values are JSON. All stamps are of the store's own clock. The values are in
`gateway.store.types` and `gateway.store.transaction`, the errors in `gateway.store.errors`.
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
    """Seconds added to the store's clock: 0 in production, set by FakeClock. It moves stamps, deadlines, TTLs and
    timers. Leases use real time."""
    shared: bool
    """Several processes may use the store at once."""

    async def open(self) -> None:
        """Open the store. Raises StoreRefused if it cannot be used as it is."""
        ...

    async def close(self) -> None:
        """Complete the calls in progress, and close the store."""
        ...

    def partition(self, conversation: str) -> str:
        """Return the partition of a conversation, two digits."""
        ...

    async def now(self) -> datetime:
        """Return the store's clock, in UTC. It never goes backwards."""
        ...

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        """Store events. Return for each event True if it is new, False for a twin, also of one in the same batch.

        The events are durable when it returns. Only a new `refusable` event is refused. Raises Overloaded if the limit
        of all waiting events is reached. Raises its subclass MailboxFull if only the limit of the conversation
        (`conversation_limit`) is reached. The events before it in the batch count towards the limits.
        """
        ...

    async def pending_decisions(
        self,
        conversation: str | None = None,
        *,
        older_than_seconds: float = 0.0,
        limit: int = 100,
    ) -> list[Waiting]:
        """Return the head of the decision lane: events with a pointer, of one conversation or of all."""
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
        """Lease the lane that has been ready longest. Return None if none was ready within `wait_seconds`.

        `only` names the one conversation or action to lease. Without it, outboxes of this `pool` alone are leased, so
        that a slow platform does not hold up the others.

        A lane is ready when it has work, is due, and is not held by a lease that has not lapsed. The work of a turn is
        one of two things. (a) A waking event without a pointer, with the events before it. (b) A note that is
        `FOLDED_AFTER_SECONDS` old. The work of an outbox is its parts. The work of an action is its id in
        `Transaction.actions`. A caller that is cancelled holds no lease:
        the lane is there for the next caller.
        """
        ...

    async def renew(self, lease: Lease, *, lease_seconds: float = 6.0) -> Control:
        """Renew the lease. Return the signals since it began. Raises Fenced when it is lost."""
        ...

    async def get(self, keys: Sequence[Key]) -> Snapshot:
        """Return these records, read at one moment."""
        ...

    async def read(
        self, log: Key, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> list[LogEntry]:
        """Return the entries of a log after a sequence number, in order: the `first` or the `last` of them, or all."""
        ...

    def watch(self, log: Key, *, after: int = 0) -> AsyncGenerator[LogEntry, None]:
        """Yield the entries of a log after a sequence number, for ever, as they are committed.

        Raises StoreUnavailable when the store closes.
        """
        ...

    async def outbox(self, conversation: str) -> list[QueuedPart]:
        """Return the unsent parts of a conversation, in order."""
        ...

    async def has_work(self, conversation: str) -> bool:
        """Return True if an event that wakes and has no pointer waits in a conversation, or an unsent part.

        Work that is leased now counts too.
        """
        ...

    async def commit(self, transaction: Transaction) -> Committed:
        """Commit the transaction: all of its writes or none. A caller that is cancelled holds no chained lease.

        Raises Conflict, Fenced, TooLate, or StoreUnavailable (outcome unknown: read, do not repeat). Raises ValueError
        for a transaction that is wrong in itself: of another partition, `finish` without a lease, steps or
        `collect_until` of no turn, `chain` without `finish`.
        """
        ...

    async def give_back(self, transaction: Transaction) -> None:
        """Release the chained lease of a commit that raised StoreUnavailable, if the commit took it.

        The next lease of the lane is given the same content.
        """
        ...

    async def run_timers(self) -> float | None:
        """Accept the events of the timers that are due. Return the seconds to the next timer, or None.

        Every process may call it.
        """
        ...

    async def acquire(self, cells: Sequence[Cell]) -> float:
        """Take the cost of every cell from its rate, or of none. Return 0 if taken, else the seconds to wait.

        It is never given back.
        """
        ...

    async def spent(self, names: Sequence[str]) -> list[Mapping[str, int]]:
        """Return the counts under these names, summed over all partitions. A count that was never added to is empty.

        Amounts are added by `Transaction.spends`.
        """
        ...

    async def has_headroom(self) -> bool:
        """Return True if disk or memory is left for new work, as measured within the last second.

        Without headroom, only work that has begun is ended: new messages are refused and no action is launched.
        """
        ...

    async def ping(self) -> None:
        """Raise StoreUnavailable if the store does not answer or cannot be written to."""
        ...


class OperatorStore(Protocol):
    """The calls of operators, and of whoever reads or removes the data of people. Many look at the whole store.

    Every call may raise StoreUnavailable.
    """

    @property
    def clock_ahead_seconds(self) -> float:
        """Seconds by which the machine's clock was ahead of the latest moment in the store when it was opened.

        0 if that is less than a day, and after `trust_clock`. While it is more, the store's clock continues from its
        latest moment. So a wrong machine clock expires and removes no record.
        """
        ...

    def trust_clock(self) -> None:
        """Follow the machine's clock although it is far ahead: the store was unused for that long."""
        ...

    @property
    def partitions(self) -> Sequence[str]:
        """All partitions."""
        ...

    async def scan(self, prefix: str) -> list[tuple[Key, Record]]:
        """Return the records of all partitions whose name begins with `prefix`, ordered by name."""
        ...

    async def logs(self, prefix: str, *, before: datetime | None = None) -> list[Key]:
        """Return the logs of all partitions with lines whose name begins with `prefix`, in no order.

        `before`: only the ones whose first line is older than this moment of the store's clock. All names are looked
        at, in many short calls: it is for work that is done a few times a day.
        """
        ...

    async def mailboxes(self, most: int = 20) -> list[Mailbox]:
        """Return the conversations with the most waiting events, the fullest first, for an operator."""
        ...

    async def mailbox(self, conversation: str, limit: int = 100) -> list[Waiting]:
        """Return the events and notes that wait in a conversation, in order, for an operator."""
        ...

    async def is_held(self, conversation: str) -> bool:
        """Return True if the turn of a conversation is held by a lease that has not lapsed."""
        ...

    async def timers(self, conversation: str | None = None) -> list[Timer]:
        """Return the timers whose event is of a conversation, or all, in no order. All timers are looked at.

        A timer that cannot be read is left out.
        """
        ...

    async def forget(self, forgotten: Forgotten) -> Mapping[str, int]:
        """Remove all of this, with its names. Return how many ``records``, ``lines``, ``events``, ``parts``,
        ``timers``, ``dead letters`` and ``counts`` there were; none of a kind is left out.

        Raises Conflict while one of the lanes is leased, before anything of its partition is removed. All names in the
        store are looked at. After a StoreUnavailable some partitions may be done, and a repeat does the others.
        Versions of the records begin anew.
        """
        ...

    async def all_spent(self, prefix: str) -> dict[str, Mapping[str, int]]:
        """Return the counts whose name begins with `prefix`, by name, summed over all partitions."""
        ...

    async def dead_letters(self, *, after: int = 0, limit: int | None = None) -> list[Dead]:
        """Return dead letters after a `seq`, the oldest first; at most `limit`.

        They are read in pages. Other callers wait for one page at most.
        """
        ...

    async def drop_all(self, reason: str | None = None) -> int:
        """Delete all dead letters, or the ones whose reason contains `reason`. Return their number."""
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
