"""A transaction: the writes of one commit, applied all together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Literal, NamedTuple

from channels import Json
from gateway.store.types import Dead, Incoming, Kind, Lease, Prefetch, QueuedPart, Spending


@dataclass(frozen=True, slots=True)
class Put:
    """A record's new value. `ttl_seconds` counts from the commit; None keeps the record until deletion."""

    value: Json
    ttl_seconds: float | None = None
    keeps_end: bool = False
    """The end of the record is not changed; `ttl_seconds` is ignored. For an existing record, checked by `expect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """An event accepted by the store at the moment `due`, with this stamp. Setting a timer of the same id moves it."""

    timer_id: str
    due: datetime
    incoming: Incoming


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """A lane to lease in the commit at the end of another lease."""

    kind: Kind
    lane: str
    prefetch: Prefetch
    lease_seconds: float
    number: int = field(default_factory=count().__next__)
    """Unique in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """Lines to remove from the beginning of a log: all, up to the number `upto`, or all but the last `keep`.

    Remaining lines keep the numbers, and later lines have greater numbers, also after all lines were removed. For a log
    without lines the store keeps neither the name nor the last number. The next line is numbered above all lines of the
    emptied logs of the partition.
    """

    log: str
    upto: int | None = None
    """Lines with a greater number stay."""
    keep: int = 0
    """The number of last lines to keep."""


@dataclass(slots=True, kw_only=True)
class Transaction:
    """The writes of one commit, within one partition."""

    partition: str
    lease: Lease | None = None
    """A lease still to be held at the commit, else Fenced."""
    finish: Literal["done", "failed"] | None = None
    """How the lease ends. `done` clears the lane's tries and checkpoint. `failed` adds a try and keeps the checkpoint.
    After both, the lane is ready again if work is left; `done` of an action removes the work present at the lease."""
    due: datetime | None = None
    """With finish: the lane is not ready before this."""
    collect_until: datetime | None = None
    """With finish of a turn: the lane is not ready before this, as long as all waking events collect."""
    chain: Chained | None = None
    """With finish: a lane of another kind to lease in the same commit, if ready for `Store.lease`."""
    not_after: datetime | None = None
    """The latest moment of the store's clock for this commit, else TooLate."""
    expect: dict[str, int] = field(default_factory=dict)
    """Record name -> the required version (0: absent)."""
    puts: dict[str, Put] = field(default_factory=dict)
    deletes: list[str] = field(default_factory=list)
    appends: list[tuple[str, Json]] = field(default_factory=list)
    """(log, value)"""
    cut: list[LogCut] = field(default_factory=list)
    """Lines to remove from logs. The lines of `appends` stay. Absent lines and logs are skipped."""
    rewrite: list[tuple[str, int, Json]] = field(default_factory=list)
    """(log, seq, value): new values of lines, with the old stamps. Absent lines are skipped."""
    consume: list[tuple[str, int]] = field(default_factory=list)
    """(conversation, seq): events to remove, with the pointers. Each must still wait, else Conflict."""
    drop_pointers: list[tuple[str, int]] = field(default_factory=list)
    """(conversation, seq): pointers to remove, else Conflict. The event stays without the pointer, and now wakes the
    conversation if accepted with `wakes`."""
    replace: list[tuple[str, int, Mapping[str, Json]]] = field(default_factory=list)
    """(conversation, seq, body): the new body of a still waiting event, else Conflict."""
    accept: list[Incoming] = field(default_factory=list)
    """Events for mailboxes of this partition. Twins are skipped, and no event is refused."""
    hand_over: list[Incoming] = field(default_factory=list)
    """Events for mailboxes of any partition. Every event needs `event_ids` (deduplication) and `stamp`; the stamp is
    not changed. The events are accepted soon after the commit, also if this process dies, and are never refused."""
    parts: list[QueuedPart] = field(default_factory=list)
    """Parts for outboxes of this partition. An already queued part is skipped."""
    sent: list[str] = field(default_factory=list)
    """Ids of parts to remove from the outbox. Absent ids are skipped."""
    steps: list[Json] = field(default_factory=list)
    """Steps to append to the checkpoint of the leased turn."""
    actions: list[str] = field(default_factory=list)
    """Ids of actions to make ready for execution (lane kind `action`), even if put off."""
    timers: list[Timer] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    """Ids of timers to remove."""
    signals: list[tuple[str, Json]] = field(default_factory=list)
    """(conversation, signal): for the current holder of the conversation's turn. Dropped if there is no holder."""
    spends: list[Spending] = field(default_factory=list)
    """Amounts to add to counts. Counts are read by `Store.spent`."""
    dead: list[Dead] = field(default_factory=list)
    """Dead letters to keep. A letter of the same id is replaced."""

    def check(self) -> None:
        """Raise ValueError for a transaction unacceptable in every state of a store."""
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
        for event in self.hand_over:
            if not event.event_ids or event.stamp is None or event.refusable:
                raise ValueError("an event that is handed over has ids and a stamp, and may not be refused")
        if any(cut.keep < 0 for cut in self.cut):
            raise ValueError("a cut keeps no negative number of lines")
        of_a_turn = self.steps or self.collect_until is not None
        if of_a_turn and lease is not None and lease.kind != "turn":
            raise ValueError(f"steps and collect_until are of a turn, and the lease is for {lease.kind!r}")

    def conversations(self) -> Iterator[str]:
        """Yield the conversations of all mailboxes and outboxes written by this transaction."""
        for conversation, _ in (*self.consume, *self.drop_pointers):
            yield conversation
        for conversation, _, _ in self.replace:
            yield conversation
        for conversation, _ in self.signals:
            yield conversation
        for event in self.accept:
            yield event.conversation
        for part in self.parts:
            yield part.conversation
        for letter in self.dead:
            for held in (letter.incoming, letter.part):
                if held is not None:
                    yield held.conversation

    @property
    def next_worker(self) -> str:
        """The worker of the lease of `chain`. The name is unique, so a caller that got no answer can give it back."""
        return "" if self.lease is None or self.chain is None else f"{self.lease.worker}/{self.chain.number}"


class Committed(NamedTuple):
    """The result of a commit."""

    at: datetime
    """The store's clock at the commit."""
    lease: Lease | None = None
    """The lease of the lane in `chain`, or None if not leased."""
