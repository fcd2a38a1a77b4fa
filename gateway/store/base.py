"""The one storage seam: everything durable goes through this protocol.

Rules about actions, sessions or budgets are plain Python above it; a store knows records, logs, mailboxes, lanes and
timers, and nothing of what they mean. Values are JSON. Every stamp is the store's own clock.

    StoreError (AskfirstError)
    ├── Conflict         a version, a waiting event or a pointer was not what the transaction expected
    ├── Fenced           the lease is somebody else's now
    ├── TooLate          the store's clock had passed `not_after`
    ├── Overloaded       a new message was refused; nothing of the batch was stored
    │   └── Flooded      because so much waits in its own conversation
    ├── StoreRefused     the store cannot be opened as it is
    │   └── StoreInUse   because another process holds it now
    └── StoreUnavailable the outcome is unknown: read, do not repeat

A NewerForm is no failure of the store: a newer release wrote what was read, and a worker of that one sees to it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import count
from typing import Literal, NamedTuple, Protocol, cast

from channels import AskfirstError, Json
from gateway.store.form import FORM, NewerForm, check_form

__all__ = [
    "FOLDED_AFTER_SECONDS",
    "FORM",
    "Cell",
    "Chained",
    "Committed",
    "Conflict",
    "Control",
    "Dead",
    "Entry",
    "Fenced",
    "Flooded",
    "Incoming",
    "Key",
    "Kind",
    "Lease",
    "Mailbox",
    "NewerForm",
    "Overloaded",
    "Prefetch",
    "Put",
    "QueuedPart",
    "Record",
    "Snapshot",
    "Stats",
    "Store",
    "StoreError",
    "StoreInUse",
    "StoreRefused",
    "StoreUnavailable",
    "Timer",
    "TooLate",
    "Transaction",
    "Waiting",
    "Written",
    "check_form",
    "most_in_one",
]

Kind = Literal["turn", "action", "out"]
"""What a lease is for: a conversation's waiting events, an action to execute, a conversation's outbox."""


class StoreError(AskfirstError):
    """The root of what a store raises."""


class Conflict(StoreError):
    """A version, a waiting event or a pointer was not what the transaction expected. Read again and decide anew."""


class Fenced(StoreError):
    """The lease is somebody else's now: stop, the work goes on there."""


class TooLate(StoreError):
    """The store's clock had passed the transaction's `not_after`."""


class Overloaded(StoreError):
    """Too much waits: a new message was refused, and nothing of its batch was stored."""


class Flooded(Overloaded):
    """So much waits in this conversation that its new messages are refused, and nobody else's."""

    def __init__(self, conversation: str, most: int) -> None:
        super().__init__(
            f"{most} events wait in {conversation}, which is all that may in one conversation: "
            "try again when some are dealt with"
        )


FOLDED_AFTER_SECONDS = 600.0
"""So long after it came, what wakes nobody makes its conversation ready by itself: it does not wait for ever for
somebody to write there."""


def most_in_one(max_waiting: int) -> int:
    """How many events may wait in one conversation, when so many may in all: a tenth of them."""
    return max(1, max_waiting // 10)


class StoreRefused(StoreError):
    """The store cannot be opened as it is: in use, damaged, of a newer release. Nothing was changed; the text says
    the mend."""


class StoreInUse(StoreRefused):
    """Another process holds the store now. It can be opened when that one ends, without any mend."""


class StoreUnavailable(StoreError):
    """The store did not answer. Whether the call took effect is unknown: read, do not repeat."""


class Key(NamedTuple):
    """The name of a record or log within its partition."""

    partition: str
    name: str


@dataclass(frozen=True, slots=True)
class Record:
    """A value and how often it was written; version 0 is a record that is not there.

    One that is written again within an hour of its end goes on counting where it ended, so whoever read the old one
    gets a Conflict, not the new one.
    """

    value: Json = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Records read at one moment of the store's clock."""

    records: Mapping[Key, Record]
    now: datetime

    def __getitem__(self, key: Key) -> Record:
        return self.records[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch:
    """What whoever takes a lane is shown with it: of each name, the record or log `<name>/<lane>`."""

    records: tuple[str, ...] = ()
    log: str | None = None
    last: int = 0
    """So many lines of the log, from its end."""


class Written(Mapping[str, Json]):
    """A body that was JSON text from the beginning, as it is stored; it is read only where somebody looks into it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _read(self) -> dict[str, Json]:
        return cast("dict[str, Json]", json.loads(self.text))

    def __getitem__(self, name: str) -> Json:
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


@dataclass(slots=True, kw_only=True)
class Incoming:
    """An event on its way into a conversation's mailbox. Not frozen: each would take twice as long to make."""

    conversation: str
    event_ids: tuple[str, ...]
    """Already made unique over channels; any of them seen before makes it a twin, and all of them are seen then.

    Seen is what came into the partition of its conversation. A repeat goes to the same conversation as the first, since
    that is read from the same bytes; the one exception is a message of a group that has just moved, delivered before
    the news of the move and again after it: it is then an event of the conversation that moved as well.
    """
    body: Mapping[str, Json]
    """What it says; see `Written`."""
    decides: bool = False
    """Gets a pointer in the decision lane, and wakes the conversation only once it has lost it."""
    wakes: bool = True
    """Makes the conversation ready for a turn; False for a note, which the next turn only has to know. Notes are never
    refused and do not count towards what may wait; alone they make it ready after `FOLDED_AFTER_SECONDS`."""
    about: str | None = None
    """What a note is about: a later one of the same takes its place, unless a lease holds it. Only for notes."""
    collects: bool = False
    """May wait for more where its conversation does (`Transaction.collect_until`); any other that wakes ends that."""
    refusable: bool = False
    """A new message of a platform that delivers again: may be refused when too much waits."""
    keep_seconds: float = 7 * 86400.0
    """How long its ids are remembered."""
    stamp: datetime | None = None
    """Its first stamp, when it comes from elsewhere in the store (a timer, a hand-over)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An event in a mailbox. `seq` orders the events of a conversation as they were accepted."""

    seq: int
    conversation: str
    stamp: datetime
    body: Mapping[str, Json]
    pointed: bool
    collects: bool = False
    tries: int = 0
    """How many turns that held it failed or died."""
    needs: int = 1
    """The form that whoever decides it must know."""


class Mailbox(NamedTuple):
    """How much waits in one conversation, notes left out."""

    conversation: str
    waiting: int
    oldest: datetime
    """The first stamp of what waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPart:
    """A part in a conversation's outbox. `part_id` is chosen before the commit that queues it.

    `body` is what delivery needs (address, part, which actions it shows); the store does not look into it.
    """

    part_id: str
    conversation: str
    body: Mapping[str, Json]
    pool: str = ""
    """Whose outbox it is, the same for all parts of a conversation: leases are taken from one pool."""
    stamp: datetime | None = None
    """When it was queued; filled in by the store."""
    tries: int = 0
    """How many leases held it as their first part and ended without a receipt for it (failed, parked or died)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run one lane, until it is finished or lost.

    One that was not renewed for `lease_seconds` of real time has lapsed: it is lost once somebody else takes the lane.
    Those of a process that owned an embedded store lapse with it.
    """

    kind: Kind
    lane: str
    """The conversation (turn, out) or the action id."""
    partition: str
    worker: str
    fence: int
    """Grows with every lease of this lane, for ever: the lane's fencing token."""
    tries: int
    """How many leases of this lane in a row ended without success before this one (died, or finished with ok=False)."""
    died: bool
    """The lease before this one was never finished: what it was doing may or may not have happened."""
    events: tuple[Waiting, ...] = ()
    """turn: everything that waits, in order (at most 100)."""
    parts: tuple[QueuedPart, ...] = ()
    """out: what waits to be sent, in order (at most 20)."""
    steps: tuple[Json, ...] = ()
    """turn: the checkpoint of the turn that was running when the lease before was lost or parked."""
    prefetched: Snapshot
    """The records that were asked for, when the lane was taken. When one of them cannot be read none is here: whoever
    looks for one fails, and holds up nobody else."""
    lines: tuple[str, ...] = ()
    """The end of the log that was asked for, in order, each line as the JSON text it is stored as."""
    sure_until: float
    """Of this process's own clock, time.monotonic(): before that it cannot have lapsed, however long anything took."""


@dataclass(frozen=True, slots=True)
class Control:
    """What the holder of a lease is told when it renews: the signals sent to its lane since it began."""

    signals: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Put:
    """A record's new value; `ttl_seconds` counts from the commit, None keeps it for good."""

    value: Json
    ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """An event to be accepted when it falls due, stamped with `due`. Setting a timer of the same id moves it."""

    timer_id: str
    due: datetime
    incoming: Incoming


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """Something given up on, kept for a person to look at: an event or a part."""

    dead_id: str
    conversation: str
    reason: str
    """In our words: no text of a person, no secret."""
    stamp: datetime | None = None
    """When it was put aside; filled in by the store."""
    incoming: Incoming | None = None
    """An event: replay puts it at the end of its mailbox."""
    part: QueuedPart | None = None
    """A part: replay puts it at the end of its outbox."""
    payload: str | None = None
    """What a platform sent and nobody understood, kept by a release before this: replay has nowhere to put it."""
    seq: int | None = None
    """Its place among all of them; filled in by the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a log."""

    seq: int
    stamp: datetime
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A rate: at most `burst` at once, refilled at `burst` per `period_seconds` (GCRA).

    Raises ValueError for a cost that never fits.
    """

    name: str
    burst: float
    period_seconds: float
    cost: float = 1.0

    def __post_init__(self) -> None:
        if self.cost > self.burst:
            raise ValueError(f"{self.name}: a cost of {self.cost} never fits into {self.burst}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """A lane that whoever ends a lease goes on with."""

    kind: Kind
    lane: str
    prefetch: Prefetch
    lease_seconds: float
    number: int = field(default_factory=count().__next__)
    """No other of this process has it."""


@dataclass(slots=True, kw_only=True)
class Transaction:
    """All or nothing, within one partition."""

    partition: str
    lease: Lease | None = None
    """Must still be held, else Fenced."""
    finish: Literal["done", "failed", "left"] | None = None
    """Gives the lease back. `done` clears the lane's tries and checkpoint; `failed` counts one more try, and keeps
    the checkpoint. Either way the lane is ready again when work is left in it: of an action, `done` ends the work that
    was there when it was leased. `left` leaves the lane as it was found, to whoever knows the form `requires_form`."""
    requires_form: int = FORM
    """With finish `left`, and for what is in `defer_decisions`."""
    due: datetime | None = None
    """With finish: the lane is not ready before this."""
    collect_until: datetime | None = None
    """With finish, of a turn: nor before this, as long as all that wakes it collects."""
    chain: Chained | None = None
    """With finish: this lane, of another kind, is leased in the same step, if `lease` would give it."""
    not_after: datetime | None = None
    expect: dict[str, int] = field(default_factory=dict)
    """Record name -> the version it must have (0: absent)."""
    puts: dict[str, Put] = field(default_factory=dict)
    deletes: list[str] = field(default_factory=list)
    appends: list[tuple[str, Json]] = field(default_factory=list)
    """(log, value)"""
    consume: list[tuple[str, int]] = field(default_factory=list)
    """(conversation, seq): each must still wait, else Conflict. A pointer goes with its event."""
    drop_pointers: list[tuple[str, int]] = field(default_factory=list)
    """(conversation, seq): each must still have its pointer, else Conflict. The event stays, and now wakes the
    conversation if it was accepted to."""
    defer_decisions: list[tuple[str, int]] = field(default_factory=list)
    """(conversation, seq): each must still have its pointer, else Conflict. From now on only whoever knows the form
    `requires_form` finds it in the decision lane."""
    replace: list[tuple[str, int, Mapping[str, Json]]] = field(default_factory=list)
    """(conversation, seq, body): the new body of an event that still waits, else Conflict."""
    accept: list[Incoming] = field(default_factory=list)
    """Events for mailboxes of this partition; a twin is passed over, and none is refused."""
    parts: list[QueuedPart] = field(default_factory=list)
    """For outboxes of this partition; a part that waits there already is passed over."""
    sent: list[str] = field(default_factory=list)
    """Part ids that leave the outbox; one that is not there is passed over."""
    steps: list[Json] = field(default_factory=list)
    """Appended to the checkpoint of the turn that `lease` holds."""
    actions: list[str] = field(default_factory=list)
    """Action ids that become ready to be executed (lane kind `action`), also those that were put off."""
    timers: list[Timer] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    """Timer ids."""
    signals: list[tuple[str, Json]] = field(default_factory=list)
    """(conversation, signal) for whoever holds the turn of that conversation now; dropped when nobody does."""
    dead: list[Dead] = field(default_factory=list)
    """One of the same id is replaced."""

    def check(self) -> None:
        """Raise ValueError for a transaction that no state of a store could take."""
        lease = self.lease
        if lease is None and (self.finish is not None or self.steps):
            raise ValueError("finish and steps belong to a lease, and the transaction names none")
        if lease is not None and lease.partition != self.partition:
            raise ValueError(f"the lease is of partition {lease.partition}, and the transaction of {self.partition}")
        if self.finish is None and not (self.due is self.collect_until is None):
            raise ValueError("due and collect_until belong to finish, and the transaction finishes nothing")
        if self.finish is None and self.chain is not None:
            raise ValueError("chain belongs to finish, and the transaction finishes nothing")
        if self.chain is not None and lease is not None and self.chain.kind == lease.kind:
            raise ValueError(f"chain is of another kind than the lease that ends, which is for {lease.kind!r}")
        of_a_turn = self.steps or self.collect_until is not None
        if of_a_turn and lease is not None and lease.kind != "turn":
            raise ValueError(f"steps and collect_until are of a turn, and the lease is for {lease.kind!r}")

    @property
    def next_worker(self) -> str:
        """Who holds the lane in `chain`: nobody else has this name, so it can be given back by whoever never heard."""
        return "" if self.lease is None or self.chain is None else f"{self.lease.worker}/{self.chain.number}"


class Committed(NamedTuple):
    """What a commit came to."""

    at: datetime
    """The store's clock at the commit."""
    lease: Lease | None = None
    """Of the lane in `chain`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts for the operator, and for whoever waits until nothing is left to do now."""

    waiting: int
    """Events in mailboxes, notes left out."""
    pointed: int
    ready: int
    """Lanes that could be leased this moment."""
    leased: int
    parked: int
    """Lanes with work that are due later, or left to a newer release; not those where only notes wait."""
    parts: int
    timers: int
    dead: int
    oldest_waiting_seconds: float


class Store(Protocol):
    """Everything durable. All calls may raise StoreUnavailable."""

    offset_seconds: float
    """Added to the store's clock: 0 in production, moved by FakeClock. It moves stamps, deadlines, TTLs and timers;
    leases run on real time."""
    shared: bool
    """Several processes may work on it at once."""

    @property
    def clock_ahead_seconds(self) -> float:
        """By how much the clock that the store follows was ahead of all that the store knows when it was opened, if
        that was more than a day and nobody has trusted it since; else 0. Until then the store's own goes on from what
        it knows, so a wrong clock expires and removes nothing."""
        ...

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def trust_clock(self) -> None:
        """Follow the clock although it is far ahead: the store was away for so long."""
        ...

    def partition(self, conversation: str) -> str:
        """Two digits: where everything of this conversation lives."""
        ...

    async def now(self) -> datetime:
        """The store's clock, in UTC; it never goes backwards."""
        ...

    async def accept(self, events: Sequence[Incoming]) -> list[bool]:
        """Durable when it returns; False for a twin, also in the same batch.

        Raises Overloaded for a new event that is `refusable` while so many wait as may in all, and Flooded, which is
        one, while so many wait in its conversation as may in one (`most_in_one`); where both hold, the former. What
        comes before it in the batch waits, too. No other event is refused.
        """
        ...

    async def pending_decisions(
        self,
        conversation: str | None = None,
        *,
        older_than_seconds: float = 0.0,
        limit: int = 100,
        knows: int = FORM,
    ) -> list[Waiting]:
        """The decision lane, from its head: events with a pointer, of one conversation or of all, but for those that
        were left to whoever knows a form above `knows`."""
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
        knows: int = FORM,
        prefetch: Prefetch = Prefetch(),
    ) -> Lease | None:
        """Take the lane that has been ready longest (`only`: this conversation or action), or None after the wait.

        Of outboxes it takes those of this pool, unless `only` names one: so a platform that is slow to take what is
        sent holds up no other.

        A lane is ready when it has work, is due, and is not held by a lease that has not lapsed. Work is: for a turn an
        event that wakes and has no pointer, whatever waits before it, or a note once it is `FOLDED_AFTER_SECONDS` old;
        parts; an action put into `actions`. One that was
        left to whoever knows a form above `knows` is not for this caller. A caller who is cancelled holds nothing: what
        it was about to be given is there for the next.
        """
        ...

    async def renew(self, lease: Lease, *, lease_seconds: float = 6.0) -> Control:
        """Keep the lease. Raises Fenced when it is lost."""
        ...

    async def get(self, keys: Sequence[Key]) -> Snapshot: ...

    async def scan(self, prefix: str) -> list[tuple[Key, Record]]:
        """Records whose name begins with `prefix`, over all partitions, ordered by name."""
        ...

    async def read(self, log: Key, *, after: int = 0, last: int | None = None) -> list[Entry]:
        """Entries of a log in order: those after a sequence number, and of them the last so many."""
        ...

    def watch(self, log: Key, *, after: int = 0) -> AsyncIterator[Entry]:
        """Entries of a log from `after` on, for ever, as they are committed. StoreUnavailable when the store closes."""
        ...

    async def mailboxes(self, most: int = 20) -> list[Mailbox]:
        """The conversations in which most waits, the fullest first; for an operator."""
        ...

    async def mailbox(self, conversation: str, limit: int = 100) -> list[Waiting]:
        """What waits in a conversation, notes included, in order; for an operator."""
        ...

    async def outbox(self, conversation: str) -> list[QueuedPart]:
        """What of a conversation is not sent yet, in order."""
        ...

    async def has_work(self, conversation: str) -> bool:
        """Whether a turn of a conversation, or what it says, is still to come, whoever holds it now: an event waits
        that wakes and has no pointer, or a part does."""
        ...

    async def is_held(self, conversation: str) -> bool:
        """Whether somebody holds the turn of a conversation, by a lease that has not lapsed."""
        ...

    async def commit(self, transaction: Transaction) -> Committed:
        """All or nothing. A caller who is cancelled holds no lease of it.

        Raises Conflict, Fenced, TooLate, or StoreUnavailable (outcome unknown: read, do not repeat); ValueError for a
        transaction that is wrong in itself (another partition's, `finish` without a lease, steps or
        `collect_until` of no turn, `chain` without `finish`).
        """
        ...

    async def give_back(self, transaction: Transaction) -> None:
        """After a StoreUnavailable of its commit: the lane that it took by `chain`, if it did, is held by nobody, and
        whoever takes it next is told what this one would have been told."""
        ...

    async def run_timers(self) -> float | None:
        """Accept what timers have fallen due; seconds until the next one, or None. Any instance may call it."""
        ...

    async def acquire(self, cells: Sequence[Cell]) -> float:
        """Take from all cells or from none: 0 when taken, else the seconds to wait. Never given back.

        Raises ValueError for a cost above its burst.
        """
        ...

    async def dead_letters(self, *, after: int = 0, limit: int | None = None) -> list[Dead]:
        """Dead letters, the oldest first: those behind the one of this `seq`, and of them so many. However many there
        are, nobody waits meanwhile for longer than a page takes."""
        ...

    async def drop_all(self, reason: str | None = None) -> int:
        """Throw away all dead letters, or those with this in their reason; how many there were."""
        ...

    async def replay(self, dead_id: str) -> bool:
        """Put a dead letter back where it came from. False when there is none of that id."""
        ...

    async def drop(self, dead_id: str) -> bool: ...
    async def stats(self) -> Stats: ...

    async def has_headroom(self) -> bool:
        """Whether there is disk or memory for more than to end what was begun, as seen within the last second. Without
        it new messages are refused, and nothing is launched."""
        ...

    async def ping(self) -> None:
        """Raises StoreUnavailable when it does not answer, and when nothing can be written."""
        ...
