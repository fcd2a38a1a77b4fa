"""The values that a store is given and returns. Their JSON is not read by the store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal, NamedTuple, cast

from channels import Json

Kind = Literal["turn", "action", "out"]
"""The kind of a lane: a conversation's waiting events, an action to execute, or a conversation's outbox."""

FOLDED_AFTER_SECONDS = 600.0
"""Age at which a note makes its conversation ready for a turn by itself, so that it does not wait for ever for the next
message."""

TIMERS_COUNTED = 10_000
"""The timers whose kinds `Stats` counts, so that counting takes milliseconds at most."""


def conversation_limit(max_waiting: int) -> int:
    """Return how many events may wait in one conversation: a tenth of the limit of the store, at least 1."""
    return max(1, max_waiting // 10)


class Key(NamedTuple):
    """The name of a record or log within its partition."""

    partition: str
    name: str


@dataclass(frozen=True, slots=True)
class Record:
    """A value and the number of its writes. Version 0 is an absent record.

    A record that is written again within an hour of its end continues its count of versions. So a transaction that
    expects the version of the ended record gets a Conflict.
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
    """The records and the log to read together with a lease. The key of each name is `<name>/<lane>`."""

    records: tuple[str, ...] = ()
    log: str | None = None
    last: int = 0
    """Number of lines to read from the end of the log."""


class Written(Mapping[str, Json]):
    """An event's body that is JSON text already, and is stored as this text. It is parsed on first access."""

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
    """An event to be stored in a conversation's mailbox. Not frozen: a frozen one takes twice as long to make."""

    conversation: str
    event_ids: tuple[str, ...]
    """Ids of the event, unique over all channels. An event with an id that was stored before is a twin, and is dropped;
    all its ids are remembered.

    Deduplication works within the partition of the conversation. A second delivery goes to the same conversation,
    because the conversation is read from the same bytes. There is one exception: a message of a group that has just
    moved, delivered before the news of the move and again after it. It is then an event of both conversations.
    """
    body: Mapping[str, Json]
    """The content, as a mapping or as JSON text (`Written`)."""
    decides: bool = False
    """Puts a pointer to the event in the decision lane. The event makes its conversation ready only once it has lost
    the pointer."""
    wakes: bool = True
    """Makes the conversation ready for a turn. False for a note. A note is never refused, does not count towards the
    limits, and makes its conversation ready by itself only after `FOLDED_AFTER_SECONDS`."""
    about: str | None = None
    """Subject of a note. A later note on the same subject replaces it, unless a lease was given the earlier one. Only
    for notes."""
    collects: bool = False
    """May wait for more events until `Transaction.collect_until`. Any other event that wakes ends that wait."""
    refusable: bool = False
    """May be refused when too many events wait: a new message of a platform that delivers it again."""
    keep_seconds: float = 7 * 86400.0
    """How long its ids are remembered."""
    stamp: datetime | None = None
    """The stamp of an event that was stored elsewhere before (a timer, a hand-over). None: the moment of storing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An event in a mailbox. `seq` orders the events of a conversation as they were accepted."""

    seq: int
    conversation: str
    stamp: datetime
    body: Mapping[str, Json]
    pointed: bool
    """The decision lane has a pointer to it."""
    collects: bool = False
    tries: int = 0
    """Number of turns that held it and failed or died."""


class Mailbox(NamedTuple):
    """The count of events in one conversation, without notes."""

    conversation: str
    waiting: int
    oldest: datetime
    """The stamp of the oldest event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPart:
    """A part in a conversation's outbox. `part_id` is chosen before the commit that queues it.

    `body` holds the data of the delivery (address, part, the actions that it shows). The store does not read it.
    """

    part_id: str
    conversation: str
    body: Mapping[str, Json]
    pool: str = ""
    """The group of outboxes that this one is leased with. All parts of a conversation have the same."""
    stamp: datetime | None = None
    """The moment of queueing, set by the store."""
    tries: int = 0
    """Number of leases that held it as their first part and ended without its receipt (failed, parked or died)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A worker's exclusive right to a lane, until it is finished or lost.

    A lease that was not renewed for `lease_seconds` of real time has lapsed. It is lost once another worker takes the
    lane. The leases of a process that owned an embedded store lapse when the process ends.
    """

    kind: Kind
    lane: str
    """The conversation (turn, out) or the action id."""
    partition: str
    worker: str
    fence: int
    """The fencing token. It grows with every lease of this lane."""
    tries: int
    """Number of leases of this lane in a row before this one that ended without success (died or failed)."""
    died: bool
    """The lease before this one was never finished. The effects of its work are unknown."""
    events: tuple[Waiting, ...] = ()
    """turn: the first 100 events of the mailbox, in order."""
    parts: tuple[QueuedPart, ...] = ()
    """out: the first 20 parts of the outbox, in order."""
    steps: tuple[Json, ...] = ()
    """turn: the checkpoint of a turn that was running when its lease was lost or parked."""
    prefetched: Snapshot
    """The records of the `Prefetch`, read when the lane was taken."""
    lines: tuple[str, ...] = ()
    """The last lines of the log of the `Prefetch`, in order, each as its JSON text."""
    sure_until: float
    """Before this moment of this process's time.monotonic() the lease has not lapsed, however long a call took."""


@dataclass(frozen=True, slots=True)
class Control:
    """The result of a renewal: the signals sent to the lane since the lease began."""

    signals: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A dead letter: an event or a part that cannot be processed, kept for an operator."""

    dead_id: str
    conversation: str
    reason: str
    """Fixed text of the gateway, without a person's words and without secrets."""
    stamp: datetime | None = None
    """The moment of storing, set by the store."""
    incoming: Incoming | None = None
    """The event. Replay puts it at the end of its mailbox."""
    part: QueuedPart | None = None
    """The part. Replay puts it at the end of its outbox."""
    seq: int | None = None
    """Its place in the order of dead letters, set by the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The data that `Store.forget` removes: lanes with all that is of them, and all that is named after a subject."""

    lanes: frozenset[str] = frozenset()
    """Conversations and actions. All that waits in them goes, with their checkpoints, timers and dead letters, and each
    record, log, count and rate whose name ends with one of them as a path."""
    subjects: frozenset[str] = frozenset()
    """Each record, log, count, rate, timer and event id goes whose name has one of these as a whole part of its path:
    ``a/b`` is one of ``x/a/b/y`` and none of ``x/a/bc``. A part of an event id may also end at a colon."""
    kept: frozenset[str] = frozenset()
    """The names of records that stay all the same."""

    def names(self, name: str) -> bool:
        """Return True for the name of a record, log, count, rate or timer that goes."""
        parts = name.split("/")
        ends = range(1, len(parts) + 1)
        found = ("/".join(parts[first:end]) for end in ends for first in range(end))
        return name not in self.kept and (
            any("/".join(parts[first:]) in self.lanes for first in range(len(parts)))
            or any(part in self.subjects for part in found)
        )

    def names_event(self, event_id: str) -> bool:
        """Return True for the id of an event that goes."""
        pieces = event_id.split(":")
        beginnings = (":".join(pieces[:end]) for end in range(1, len(pieces)))
        return self.names(event_id) or any(beginning in self.subjects for beginning in beginnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One line of a log."""

    seq: int
    stamp: datetime
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A rate limit (GCRA): at most `burst` at once, refilled at `burst` per `period_seconds`.

    Raises ValueError for a cost above its burst.
    """

    name: str
    burst: float
    period_seconds: float
    cost: float = 1.0

    def __post_init__(self) -> None:
        if self.cost > self.burst:
            raise ValueError(f"{self.name}: a cost of {self.cost} never fits into {self.burst}")

    @property
    def cost_micros(self) -> int:
        """Microseconds in which the rate refills its cost."""
        return int(self.cost * self.period_seconds * 1_000_000 / self.burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Amounts to add to a count that several processes share. The count may exceed any limit.

    Each partition has its own count under a name, and readers get the sum of all partitions.
    """

    name: str
    amounts: Mapping[str, int]
    keep_seconds: float
    """How long the count is kept after the last addition. A later addition begins anew at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts for the operator, and for a caller that waits until no work is left."""

    waiting: int
    """Events in mailboxes, without notes."""
    pointed: int
    """Events that wait in the decision lane."""
    ready: int
    """Lanes that could be leased at this moment."""
    leased: int
    parked: int
    """Lanes with work that is due later. Conversations with notes alone are not counted."""
    parts: int
    timers: int
    dead: int
    oldest_waiting_seconds: float
    timer_kinds: Mapping[str, int] = field(default_factory=dict)
    """The timers by the word before the slash of their ids. Only the next `TIMERS_COUNTED` are looked at, on Redis in
    each partition."""
