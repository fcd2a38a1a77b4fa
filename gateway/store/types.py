"""The arguments and results of a store's calls. The store does not read the JSON inside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal, NamedTuple, cast, get_args

from channels import Json

MailboxKind = Literal["turn", "memory"]
"""The kind of a mailbox's lane: the events of a conversation, or the work on memories beside it."""
Kind = MailboxKind | Literal["action", "out"]
"""The kind of a lane: waiting events (`MailboxKind`), an action to execute, or a conversation's outbox."""
MAILBOXES: tuple[MailboxKind, ...] = get_args(MailboxKind)
KINDS: tuple[Kind, ...] = (*MAILBOXES, "action", "out")

FOLDED_AFTER_SECONDS = 600.0
"""Age at which a note alone makes the conversation ready for a turn, without the next message."""

TIMERS_COUNTED = 10_000
"""The most timers counted in `Stats.timer_kinds`: counting takes milliseconds at most."""


def conversation_limit(max_waiting: int) -> int:
    """Return the limit of waiting events in a conversation: a tenth of the store's limit, at least 1."""
    return max(1, max_waiting // 10)


class Key(NamedTuple):
    """The partition and the name of a record or log."""

    partition: str
    name: str


@dataclass(frozen=True, slots=True)
class Record:
    """A value and the number of writes. Version 0 is an absent record.

    A record written again within an hour of the end continues the count of versions. So a transaction with the version
    of the ended record in `expect` gets a Conflict.
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
    """An event's body as JSON text, stored unchanged. The text is parsed on first access."""

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
    """An event to be stored in a conversation's mailbox. Not frozen: a frozen object takes twice as long to make."""

    conversation: str
    event_ids: tuple[str, ...]
    """Ids of the event, unique over all channels. An event with a known id is a twin, and is dropped; all ids of the
    twin are remembered.

    Deduplication works within the partition of the conversation. A second delivery goes to the same conversation,
    because the conversation is read from the same bytes. The only exception is a message of a just moved group,
    delivered both before and after the news of the move. This message is then an event of both conversations.
    """
    body: Mapping[str, Json]
    """The content, as a mapping or as JSON text (`Written`)."""
    decides: bool = False
    """Puts a pointer to the event in the decision lane. The event makes the conversation ready only after the pointer
    is dropped."""
    wakes: bool = True
    """Makes the conversation ready for a turn. False for a note. A note is never refused, does not count towards the
    limits, and alone makes the conversation ready only after `FOLDED_AFTER_SECONDS`."""
    kind: MailboxKind = "turn"
    """The lane of the mailbox. All events of a conversation are of one kind. Only a turn has notes, events to decide
    and events that collect."""
    about: str | None = None
    """Subject of a note. A later note on the same subject replaces the earlier note, unless a lease has the latter.
    Only for notes."""
    collects: bool = False
    """May wait for more events until `Transaction.collect_until`. Any other waking event ends the wait."""
    refusable: bool = False
    """May be refused when too many events wait: a new message of a redelivering platform."""
    keep_seconds: float = 7 * 86400.0
    """Seconds for remembering the ids."""
    stamp: datetime | None = None
    """The stamp of an event stored elsewhere before (a timer, a hand-over). None: the moment of storing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An event in a mailbox. `seq` is the order of acceptance within a conversation."""

    seq: int
    conversation: str
    stamp: datetime
    body: Mapping[str, Json]
    pointed: bool
    """The decision lane has a pointer to the event."""
    collects: bool = False
    kind: MailboxKind = "turn"
    tries: int = 0
    """Number of failed or dead turns with this event."""


class Mailbox(NamedTuple):
    """The count of events in a conversation, without notes."""

    conversation: str
    waiting: int
    oldest: datetime
    """The stamp of the oldest event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPart:
    """A part in a conversation's outbox. `part_id` is chosen before the queueing commit.

    `body` holds the data of the delivery (address, part, shown actions). The store does not read the body.
    """

    part_id: str
    conversation: str
    body: Mapping[str, Json]
    pool: str = ""
    """The group of outboxes for leasing. All parts of a conversation have the same pool."""
    stamp: datetime | None = None
    """The moment of queueing, set by the store."""
    tries: int = 0
    """Number of leases with this part first that ended without its receipt (failed, parked or died)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A worker's exclusive right to a lane, until finished or lost.

    A lease without renewal for `lease_seconds` of real time has lapsed. A lapsed lease is lost once another worker
    takes the lane. The leases of an embedded store lapse when the owning process ends.
    """

    kind: Kind
    lane: str
    """The conversation (turn, out) or the action id."""
    partition: str
    worker: str
    fence: int
    """The fencing token, greater than in every earlier lease of this lane."""
    tries: int
    """Number of unsuccessful leases of this lane (died or failed) in a row, right before this lease."""
    died: bool
    """The previous lease was never finished. The effects of the earlier work are unknown."""
    events: tuple[Waiting, ...] = ()
    """turn: the first 100 events of the mailbox, in order."""
    parts: tuple[QueuedPart, ...] = ()
    """out: the first 20 parts of the outbox, in order."""
    steps: tuple[Json, ...] = ()
    """turn: the checkpoint of a turn with a lost or parked lease."""
    prefetched: Snapshot
    """The records of the `Prefetch`, read when the lane was taken."""
    lines: tuple[str, ...] = ()
    """The last lines of the log of the `Prefetch`, in order, each as JSON text."""
    sure_until: float
    """The lease has not lapsed before this moment of `clock_steps.elapsed_seconds`, however long a call took."""


@dataclass(frozen=True, slots=True)
class Control:
    """The result of a renewal: the signals sent to the lane since the lease began."""

    signals: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A dead letter: an unprocessable event or part, kept for an operator."""

    dead_id: str
    conversation: str
    reason: str
    """Fixed text of the gateway, without a person's words and without secrets."""
    stamp: datetime | None = None
    """The moment of storing, set by the store."""
    incoming: Incoming | None = None
    """The event. Replay appends the event to the mailbox."""
    part: QueuedPart | None = None
    """The part. Replay appends the part to the outbox."""
    seq: int | None = None
    """The place in the order of dead letters, set by the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The data to remove with `Store.forget`: whole lanes, and everything named after a subject."""

    lanes: frozenset[str] = frozenset()
    """Conversations and actions. All waiting items of these lanes are removed, with checkpoints, timers and dead
    letters, and each record, log, count and rate with a lane as the end of the name's path."""
    subjects: frozenset[str] = frozenset()
    """Subjects, as whole parts of a path. Each record, log, count, rate, timer and event id with a subject in the name
    is removed: ``a/b`` is in ``x/a/b/y`` and not in ``x/a/bc``. An event id may also begin with a subject and a
    colon."""
    kept: frozenset[str] = frozenset()
    """The names of records to keep all the same."""

    def names(self, name: str) -> bool:
        """Return True for the name of a record, log, count, rate or timer to remove."""
        parts = name.split("/")
        ends = range(1, len(parts) + 1)
        found = ("/".join(parts[first:end]) for end in ends for first in range(end))
        return name not in self.kept and (
            any("/".join(parts[first:]) in self.lanes for first in range(len(parts)))
            or any(part in self.subjects for part in found)
        )

    def names_event(self, event_id: str) -> bool:
        """Return True for the id of an event to remove."""
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

    Raises ValueError for a cost above the burst.
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
        """Microseconds for refilling the cost."""
        return int(self.cost * self.period_seconds * 1_000_000 / self.burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Amounts to add to a count of several processes. The count may exceed any limit.

    Each partition has a separate count under a name, and readers get the sum of all partitions.
    """

    name: str
    amounts: Mapping[str, int]
    keep_seconds: float
    """Seconds for keeping the count after the last addition. A later addition begins anew at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts for the operator, and for a caller waiting for the end of all work."""

    waiting: int
    """Events in mailboxes, without notes."""
    pointed: int
    """Events in the decision lane."""
    ready: int
    """Lanes ready to be leased at this moment."""
    leased: int
    parked: int
    """Lanes with work due later. Conversations with notes alone are not counted."""
    parts: int
    timers: int
    dead: int
    oldest_waiting_seconds: float
    timer_kinds: Mapping[str, int] = field(default_factory=dict)
    """Number of timers by the word before the slash of the id. Only the next `TIMERS_COUNTED` are examined, on Redis in
    each partition."""
