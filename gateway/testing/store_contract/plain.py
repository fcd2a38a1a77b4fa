"""A model of a store in plain Python, without code of any store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.store.types import FOLDED_AFTER_SECONDS, MAILBOXES, Kind, Lease, Stats

Moment = tuple[float, int]
"""Seconds of the history, and the number of the step. Lanes made ready by the same step have no order."""
NEVER: Moment = (0.0, 0)
FOREVER = 1e12
BURST = 3


@dataclass(eq=False, slots=True)
class Item:
    """A waiting event, part or launch of an action."""

    name: Any
    wakes: bool = True
    pointed: bool = False
    collects: bool = False
    tries: int = 0
    about: str | None = None

    @property
    def is_note(self) -> bool:
        return not self.wakes and not self.pointed


@dataclass(frozen=True, slots=True)
class LeaseQuery:
    """The lanes available to a worker."""

    kinds: tuple[Kind, ...]
    only: str | None = None
    pool: str = ""


@dataclass(eq=False, slots=True)
class Lane:
    """A lane, its lease, and the state kept from a lease to the next."""

    kind: Kind
    name: str
    pool: str = ""
    items: list[Item] = field(default_factory=list)
    ready: Moment | None = None
    rests: bool = False
    """True if only notes wait: the lane is ready once the notes are old."""
    due: Moment = NEVER
    held: Lease | None = None
    lapsed: bool = False
    gone: Lease | None = None
    """The last lost or ended lease."""
    handed: list[Item] = field(default_factory=list)
    """The items given to the lease."""
    tries: int = 0
    died: bool = False
    steps: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)

    @property
    def work(self) -> list[Item]:
        return [item for item in self.items if item.wakes and not item.pointed]

    @property
    def free(self) -> bool:
        return self.held is None or self.lapsed

    @property
    def notes(self) -> list[Item]:
        return [item for item in self.items if item.is_note]

    def put(self, item: Item, at: Moment) -> None:
        if item.about is not None:
            handed = self.handed if self.held is not None else []
            replaced = [each for each in self.notes if each.about == item.about and each not in handed]
            self.items = [each for each in self.items if each not in replaced]
        self.items.append(item)
        if item.is_note:
            self.rest(at)
        elif not item.pointed:
            self.wake(at, collects=item.collects)

    def rest(self, at: Moment) -> None:
        if self.ready is None:
            self.ready, self.rests = max((at[0] + FOLDED_AFTER_SECONDS, at[1]), self.due), True

    def launch(self, item: Item, at: Moment) -> None:
        if self.held is None:
            self.due = NEVER
        self.put(item, at)

    def wake(self, at: Moment, *, collects: bool = False) -> None:
        soonest = max(at, self.due)
        waits_for_more = self.ready is not None and self.held is None and self.ready > soonest
        if self.ready is None or self.rests or (waits_for_more and not collects):
            self.ready, self.rests = soonest, False

    def remove(self, gone: Sequence[Any], at: Moment) -> None:
        self.items = [item for item in self.items if item.name not in gone]
        if not self.work and not (self.rests and self.notes):
            self.sleep(at)

    def sleep(self, at: Moment) -> None:
        """Make the lane unready, as no work is left; or ready later, if notes wait."""
        self.ready, self.rests = None, False
        if self.notes:
            self.rest(at)

    def take(self, lease: Lease) -> None:
        if self.lapsed:
            self.tries += 1
            self.died = True
            self.count_try()
        self.gone = self.held or self.gone
        self.held, self.lapsed, self.signals = lease, False, []
        self.handed = self.items[:1] if self.kind == "out" else self.items[:]

    def finish(
        self, outcome: Literal["done", "failed"], at: Moment, due: Moment = NEVER, collect_until: Moment = NEVER
    ) -> None:
        if outcome == "failed" or self.kind == "out":
            self.count_try()
        if outcome == "done":
            self.steps = []
        if outcome == "done" and self.kind == "action":
            self.items = [item for item in self.items if item not in self.handed]
        self.tries = 0 if outcome == "done" else self.tries + 1
        self.gone, self.held, self.lapsed, self.died, self.signals = self.held, None, False, False, []
        self.due = due
        if not self.work:
            self.sleep(at)
            return
        self.ready, self.rests = max(at, due), False
        if all(item.collects for item in self.work):
            self.ready = max(self.ready, collect_until)

    def count_try(self) -> None:
        for item in self.handed:
            item.tries += 1


@dataclass(slots=True)
class Kept:
    """A record as last written. The version is kept after the record's end."""

    value: int
    version: int
    ends: float
    gone: bool = False


@dataclass(slots=True)
class Lines:
    """The lines of a log by number, and the greatest number ever used."""

    there: dict[int, int] = field(default_factory=dict)
    last: int = 0

    def cut(self, upto: int | None, keep: int) -> None:
        numbers = sorted(self.there)
        for number in numbers[: max(0, len(numbers) - keep)]:
            if upto is None or number <= upto:
                del self.there[number]


@dataclass(frozen=True, slots=True)
class Timed:
    """An event of a timer."""

    due: Moment
    lane: Lane
    item: Item


@dataclass(slots=True)
class Plain:
    """The whole state of a store."""

    now: float = 0.0
    step: int = 0
    lanes: list[Lane] = field(default_factory=list)
    seen: dict[str, float] = field(default_factory=dict)
    """Event id -> the moment until which the store keeps the id."""
    records: dict[str, Kept] = field(default_factory=dict)
    logs: dict[str, Lines] = field(default_factory=dict)
    timers: dict[str, Timed] = field(default_factory=dict)
    letters: dict[str, tuple[str | None, Item]] = field(default_factory=dict)
    """Name -> event id and item; the id of a part is None."""
    taken: int = 0
    """The cost taken from a rate without refill in the time of a history."""

    @property
    def at(self) -> Moment:
        return (self.now, self.step)

    def later(self, seconds: float) -> Moment:
        return (self.now + seconds, self.step)

    def lane(self, kind: Kind, name: str) -> Lane:
        return next(lane for lane in self.lanes if (lane.kind, lane.name) == (kind, name))

    def is_ready(self, lane: Lane) -> bool:
        return lane.free and lane.ready is not None and lane.ready <= self.at

    def first(self, query: LeaseQuery) -> list[Lane]:
        """Return the longest-ready lane of a query. Several, if the same step made several lanes ready."""
        found = [
            lane
            for lane in self.lanes
            if lane.kind in query.kinds
            and (lane.name == query.only if query.only else lane.kind != "out" or lane.pool == query.pool)
            and self.is_ready(lane)
        ]
        since = min((lane.ready or NEVER for lane in found), default=NEVER)
        return [lane for lane in found if lane.ready == since]

    def is_new(self, event_id: str) -> bool:
        return self.seen.get(event_id, 0.0) <= self.now

    def version(self, name: str) -> int:
        kept = self.records.get(name)
        return 0 if kept is None or kept.gone or kept.ends <= self.now else kept.version

    def put(self, name: str, value: int, ends: float) -> None:
        before = self.records.get(name)
        self.records[name] = Kept(value, 1 if before is None else before.version + 1, ends)

    def fire_timers(self) -> None:
        """Accept the events of the due timers."""
        for name, timed in sorted(self.timers.items(), key=lambda item: item[1].due):
            if timed.due <= self.at:
                del self.timers[name]
                timed.lane.put(timed.item, self.at)

    def stats(self) -> Stats:
        mail = [item for lane in self.lanes if lane.kind in MAILBOXES for item in lane.items]
        waits = [lane for lane in self.lanes if lane.held is None and lane.ready is not None and not lane.rests]
        return Stats(
            waiting=sum(not item.is_note for item in mail),
            pointed=sum(item.pointed for item in mail),
            ready=sum(self.is_ready(lane) for lane in self.lanes),
            leased=sum(not lane.free for lane in self.lanes),
            parked=sum(not self.is_ready(lane) for lane in waits),
            parts=sum(len(lane.items) for lane in self.lanes if lane.kind == "out"),
            timers=len(self.timers),
            dead=len(self.letters),
            oldest_waiting_seconds=0.0,
        )
