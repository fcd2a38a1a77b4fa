"""The index of a conversation: its open, running and lately settled actions, and the last messages of both sides.

It is sealed, and it names the seal of each record's last write: only exactly that record may be decided or launched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from channels import Address, Json
from gateway.store.codec import micros
from gateway.tools.pending_action import PendingAction, State, canonical_json, json_text

LATELY = timedelta(minutes=10)
"""The time for which a settled action still takes a bare reply for itself."""
AFTER_A_NO = timedelta(hours=1)
"""The time after the no of an approver in which only a press of the requester asks the approvers again."""
_MOST_PRESSES = 3
_KEPT = 20
"""The number of settled entries that are kept to answer a late code or reply. Their records live longer."""
_STOPS_KEPT = 100
_SHOWINGS_KEPT = 10
_UNKNOWN_KEPT = timedelta(days=30)
_GOING: frozenset[State] = frozenset({"approved", "running", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """The entry of one action: the ways to find it, and the seal of its last record."""

    action_id: str
    seal: str = ""
    """The seal of the record's last write."""
    state: State = "pending"
    code: str
    requester: str
    approvers: tuple[str, ...] = ()
    language: str = "en"
    """Stored only when it is another than this default."""
    prompts: tuple[str, ...] = ()
    """The platform's ids of the messages of its prompts."""
    at: datetime
    """The time when it was asked, decided or settled."""
    refused: str = ""
    """The `same_ask` of an action that was refused, expired, withdrawn or undelivered."""
    fence: int = 0
    """The fence under which it was launched."""
    standing_code: str = ""
    """The code that confirms it and gives its standing permission."""
    doubted: datetime | None = None
    """The time when a no in words could not be taken. Words count only in answer to a showing that was queued since."""
    ballots: tuple[tuple[str, str], ...] = ()
    """Each approver that is asked in their own chat, with its conversation, until the action is settled.

    An action whose record was changed ends there too.
    """
    salt: str = ""
    """The salt of an action with ballots, by which they are found, until it is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPermission:
    """The way to find a standing permission: it is part of the record of the action that gave it."""

    action_id: str
    person: str
    seal: str = ""
    """The seal of that record's last write. With any other record there is no permission, so that neither an old index
    nor an old record that is put back revives it or renews its uses."""


_Named = TypeVar("_Named", IndexEntry, StandingPermission)


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """A message of the bot that arrived while an action was open."""

    at: datetime
    """The time of its receipt."""
    queued: datetime
    shows: frozenset[str] = frozenset()
    """The ids of the actions that it asks about; empty if it is no prompt."""
    tells: frozenset[str] = frozenset()
    """The ids of the actions whose end it tells."""
    alone: bool = False
    """True if it holds questions of the gateway's, or its list of them, and no other words."""
    listed: tuple[str, ...] = ()
    """The ids of all actions of its numbered list, in order. The list may go on over several messages."""
    intent: Literal["confirm", "cancel"] | None = None
    """The meaning of a number in answer to it, if it asks which action a yes or a no meant."""
    message_id: str | None = None
    sent_at: datetime | None = None
    """The platform's time of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproversNo:
    """An approver refused a call of a tool, so that only a press of its requester asks the approvers again."""

    kind: str
    requester: str
    at: datetime
    pressed: tuple[datetime, ...] = ()
    """The times when the requester had it asked again within the last hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEnd:
    """The end of one item of a plan, which the plan has not told yet."""

    action_id: str
    place: int
    state: State
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProgress:
    """The confirmed items of a plan while they run: the ends to tell, and the questions to show behind them."""

    plan: str
    ends: tuple[PlanEnd, ...] = ()
    late: bool = False
    """True once the first ends were told, because the others took too long. Each later end is told by itself."""
    rest: tuple[str, ...] = ()
    """The ids of the open items that are shown again after the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The actions of a conversation in short: the open ones in the order of their asks, the others newest last."""

    counter: int = 0
    """Grows with every write, so that an older copy of the index is known as one."""
    open: tuple[IndexEntry, ...] = ()
    going: tuple[IndexEntry, ...] = ()
    """The actions that are approved, running, or of unknown outcome."""
    lately: tuple[IndexEntry, ...] = ()
    acted: Mapping[str, datetime] = field(default_factory=dict)
    """Person -> the time when they last wrote or pressed anything here."""
    stopped: Mapping[str, datetime] = field(default_factory=dict)
    """Person -> the time of their last /stop here, for the 100 people who said it last."""
    all_stopped: datetime | None = None
    """The time of the last /stop of a person who is no longer in `stopped`. It holds for everybody."""
    said: tuple[Showing, ...] = ()
    """The last messages of the bot that arrived, oldest first."""
    address: Address | None = None
    """The address of the conversation."""
    changing: Mapping[str, str] = field(default_factory=dict)
    """Person -> the id of the action that they are changing. Their messages say how, until it is asked anew."""
    reminded: Mapping[str, tuple[int, datetime]] = field(default_factory=dict)
    """Person -> the number of open actions that they were told of in a line under a reply, and the time of it."""
    permissions: tuple[StandingPermission, ...] = ()
    refusals: tuple[ApproversNo, ...] = ()
    """The refusals of approvers within the last hour."""
    plans: tuple[PlanProgress, ...] = ()
    """The plans with ends that are not told yet."""

    def to_text(self) -> str:
        """Return the text that is stored and sealed."""
        try:
            return _adapter().dump_json(self, exclude_defaults=True).decode()
        except ValueError:  # half of a surrogate pair in the id of a person
            return json_text(_adapter().dump_python(self, mode="json", exclude_defaults=True))

    @classmethod
    def from_text(cls, text: str) -> Index:
        """Return the index of a stored text. Raises ValueError for any other text."""
        index: Index = _adapter().validate_json(text)
        return index

    @property
    def live(self) -> tuple[IndexEntry, ...]:
        """The entries whose record may still change."""
        return (*self.open, *self.going)

    @property
    def settled(self) -> tuple[IndexEntry, ...]:
        """The entries that were decided or ended, the last one first."""
        return tuple(sorted((*self.going, *self.lately), key=lambda entry: entry.at, reverse=True))

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """All entries: the open ones, then the settled ones, the last one first."""
        return (*self.open, *self.settled)

    def seal_of(self, action_id: str) -> str | None:
        """Return the seal of the last write of an action's record; None if the index does not name the action."""
        named: Sequence[IndexEntry | StandingPermission] = (*self.entries, *self.permissions)
        return next((each.seal for each in named if each.action_id == action_id), None)

    def last_asked_language(self) -> str | None:
        """Return the language of the newest question; None if there is no question."""
        latest = max(self.entries, key=lambda entry: entry.at, default=None)
        return latest.language if latest is not None else None

    def get(self, action_id: str) -> IndexEntry | None:
        return next((entry for entry in self.entries if entry.action_id == action_id), None)

    def hears(self, person: str, at: datetime) -> bool:
        """Return True if a message of this person must be noted: an action is live, or an action was settled lately
        and they have not written since."""
        if self.live:
            return True
        since = max(at - LATELY, self.acted.get(person, at - LATELY))
        return any(entry.at >= since for entry in self.lately)

    def has_stopped(self, person: str, since: datetime) -> bool:
        """Return True if this person said /stop after that moment, or may have."""
        return any(when is not None and when > since for when in (self.stopped.get(person), self.all_stopped))

    def heeds(self, at: datetime) -> bool:
        """Return True if a message of the bot must be noted: an action is live, or was settled lately."""
        return bool(self.live) or any(entry.at >= at - LATELY for entry in self.lately)

    def by_code(self, code: str) -> IndexEntry | None:
        """Return the open entry with this code, else the last settled one."""
        return next((entry for entry in self.entries if code in (entry.code, entry.standing_code)), None)

    def by_prompt(self, message_id: str) -> tuple[IndexEntry, ...]:
        """Return the entries that were asked in this message of the bot."""
        return tuple(entry for entry in self.entries if message_id in entry.prompts)

    def beside(self, action_ids: frozenset[str]) -> frozenset[str]:
        """Return the ids of all actions that were asked in the same messages as these."""
        messages = {prompt for entry in self.entries if entry.action_id in action_ids for prompt in entry.prompts}
        return frozenset(entry.action_id for entry in self.entries if not messages.isdisjoint(entry.prompts))

    def refused_since(self, since: datetime, ask: str) -> bool:
        """Return True if an equal ask was refused, expired, withdrawn or undelivered since then."""
        return any(entry.refused == ask and entry.at >= since for entry in self.lately)

    def last_said(
        self, at: datetime, follows: Callable[[Showing], bool] = lambda showing: False
    ) -> tuple[Showing, ...]:
        """Return the bot's last messages before this moment, oldest first: one, or several that make one list.

        A message that was being sent at that moment counts if the answer `follows` it, in the platform's own order.
        Otherwise the result is empty, because the message may have been on the screen before its receipt came.
        """
        said: list[Showing] = []
        for showing in self.said:
            if showing.at <= at or (showing.queued <= at and follows(showing)):
                said.append(showing)
            elif showing.queued <= at:
                return ()
        if not said:
            return ()
        last = said[-1]
        found = [last]
        for showing in reversed(said[:-1]):
            if not last.listed or (showing.listed, showing.intent) != (last.listed, last.intent):
                break
            found.insert(0, showing)
        return tuple(found)

    def approvers_refused(self, kind: str, requester: str, now: datetime) -> ApproversNo | None:
        """Return the last refusal of this tool and requester by an approver, if it is less than an hour old."""
        found = [each for each in self.refusals if (each.kind, each.requester) == (kind, requester)]
        return next((each for each in found if now - each.at < AFTER_A_NO), None)

    def progress(self, plan: str) -> PlanProgress:
        """Return the progress of a plan; an empty one if no end is held for it."""
        return next((each for each in self.plans if each.plan == plan), PlanProgress(plan=plan))

    # ── changing ──

    def refused_by_approver(self, kind: str, requester: str, at: datetime) -> Index:
        """Return the index with a note that an approver refused a call of this tool."""
        known = self.approvers_refused(kind, requester, at)
        return self._with_refusal(
            replace(known, at=at) if known else ApproversNo(kind=kind, requester=requester, at=at)
        )

    def asked_again(self, kind: str, requester: str, at: datetime) -> Index | None:
        """Return the index with a press that asks the approvers again; None after three presses within an hour."""
        known = self.approvers_refused(kind, requester, at) or ApproversNo(kind=kind, requester=requester, at=at)
        lately = tuple(each for each in known.pressed if at - each < AFTER_A_NO)
        return None if len(lately) >= _MOST_PRESSES else self._with_refusal(replace(known, pressed=(*lately, at)))

    def _with_refusal(self, refusal: ApproversNo) -> Index:
        key = (refusal.kind, refusal.requester)
        others = [each for each in self.refusals if (each.kind, each.requester) != key]
        kept = [each for each in others if refusal.at - each.at < AFTER_A_NO]
        return replace(self, refusals=(*kept, refusal)[-_KEPT:])

    def progressed(self, progress: PlanProgress) -> Index:
        """Return the index with the progress of a plan. An empty progress is dropped."""
        others = tuple(each for each in self.plans if each.plan != progress.plan)
        holds = progress != PlanProgress(plan=progress.plan)
        return replace(self, plans=(*others, progress) if holds else others)

    def changed(self, action: PendingAction, at: datetime) -> Index:
        """Return the index after any change of a record.

        Code, requester and approvers stay as they were asked, and no prompt is forgotten: if a changed record could
        leave a prompt, a yes would seem to mean the other action of that prompt.
        """
        known = self.get(action.pending_action_id)
        if known is None:
            entry = _entry(action, at)
        else:
            prompts = tuple(dict.fromkeys((*known.prompts, *action.prompts)))
            moved = known.state != action.state
            entry = replace(
                known, prompts=prompts, state=action.state, fence=action.fence, at=at if moved else known.at
            )
        if action.reason in ("refused", "expired", "withdrawn", "undelivered"):
            entry = replace(entry, refused=same_ask(action.kind, action.args, action.requester))
        if action.settled:
            entry = replace(entry, ballots=(), salt="")
        if action.open and action.address is not None:
            return replace(self, address=action.address).placed(entry)
        going = tuple(each for each in self.going if each.state != "unknown" or each.at >= at - _UNKNOWN_KEPT)
        return replace(self, going=going).placed(entry)

    def placed(self, entry: IndexEntry) -> Index:
        """Return the index with this entry in the group of its state."""
        going, lately = _without(self.going, entry), _without(self.lately, entry)
        if entry.state == "pending":
            return replace(self, open=_with(self.open, entry), going=going, lately=lately)
        if entry.state in _GOING:
            going = (*going, entry)
        else:
            lately = (*lately, entry)[-_KEPT:]
        return replace(self, open=_without(self.open, entry), going=going, lately=lately)

    def written(self, seals: Mapping[str, str], at: datetime) -> Index:
        """Return the index to store, with the seals of the records that are written with it.

        The counter becomes the time in microseconds, or one more than before. So it also grows after an index was
        deleted at the end of its time to live.
        """

        def sealed(entries: Sequence[_Named]) -> tuple[_Named, ...]:
            return tuple(
                [replace(each, seal=seals[each.action_id]) if each.action_id in seals else each for each in entries]
            )

        return replace(
            self,
            counter=max(self.counter + 1, micros(at)),
            open=sealed(self.open),
            going=sealed(self.going),
            lately=sealed(self.lately),
            permissions=sealed(self.permissions),
        )

    def moved(self, address: Address) -> Index:
        """Return the index for another address, without the message ids of the old one."""
        return replace(
            self,
            said=(),
            address=address,
            open=tuple(map(_unshown, self.open)),
            going=tuple(map(_unshown, self.going)),
            lately=tuple(map(_unshown, self.lately)),
        )

    def acted_by(self, person: str, at: datetime) -> Index:
        """Return the index with a note that a person wrote or pressed something."""
        return replace(self, acted=dict(_noted(self.acted, person, at)[-_KEPT - 1 :]))

    def changed_by(self, person: str, action_id: str | None) -> Index:
        """Return the index with a note that a person is changing an action; None: no action any more."""
        others = {other: held for other, held in self.changing.items() if other != person}
        return replace(self, changing=others if action_id is None else {**others, person: action_id})

    def doubted(self, action_ids: Iterable[str], at: datetime) -> Index:
        """Return the index with a note that a no in words about these open actions could not be taken at this time."""
        ids = frozenset(action_ids)
        entries = tuple(replace(each, doubted=at) if each.action_id in ids else each for each in self.open)
        return replace(self, open=entries)

    def stopped_by(self, person: str, at: datetime) -> Index:
        """Return the index with a note that a person said /stop. A note that is dropped holds for everybody."""
        stops = _noted(self.stopped, person, at)
        gone, kept = stops[:-_STOPS_KEPT], stops[-_STOPS_KEPT:]
        moments = [when for when in (self.all_stopped, *(when for _, when in gone)) if when is not None]
        return replace(self, stopped=dict(kept), all_stopped=max(moments, default=None))

    def permitted_by(self, action: PendingAction) -> Index:
        """Return the index with the standing permission of this action."""
        permission = StandingPermission(action_id=action.pending_action_id, person=action.requester)
        return replace(self, permissions=(*self.permissions, permission))

    def without_permission(self, action_id: str) -> Index:
        """Return the index without the standing permission of this action."""
        return replace(self, permissions=tuple(each for each in self.permissions if each.action_id != action_id))

    def showed(self, showing: Showing) -> Index:
        """Return the index with a message of the bot that arrived, in the order of arrival."""
        said = sorted((*self.said, showing), key=lambda each: each.at)
        return replace(self, said=tuple(said[-_SHOWINGS_KEPT:]))


def same_ask(kind: str, args: Mapping[str, Json], requester: str) -> str:
    """Return a hash of tool, arguments and requester, which two asks share only if they are equal."""
    ask = canonical_json([kind, dict(args), requester])
    return hashlib.sha256(ask).hexdigest()[:32]


def _with(entries: Sequence[IndexEntry], entry: IndexEntry) -> tuple[IndexEntry, ...]:
    if any(each.action_id == entry.action_id for each in entries):
        return tuple(entry if each.action_id == entry.action_id else each for each in entries)
    return (*entries, entry)


def _without(entries: Sequence[IndexEntry], entry: IndexEntry) -> tuple[IndexEntry, ...]:
    return tuple(each for each in entries if each.action_id != entry.action_id)


def _noted(moments: Mapping[str, datetime], person: str, at: datetime) -> list[tuple[str, datetime]]:
    """Return the moments in order of time, with the new moment of this person at the end."""
    others = sorted(((other, when) for other, when in moments.items() if other != person), key=lambda item: item[1])
    return [*others, (person, max(moments.get(person, at), at))]


def _unshown(entry: IndexEntry) -> IndexEntry:
    return replace(entry, prompts=())


def _entry(action: PendingAction, at: datetime) -> IndexEntry:
    return IndexEntry(
        action_id=action.pending_action_id,
        state=action.state,
        code=action.code,
        requester=action.requester,
        approvers=action.approvers,
        language=action.language,
        prompts=action.prompts,
        at=action.requested_at if action.open else action.finished_at or at,
        standing_code=action.standing.code if action.standing is not None else "",
        ballots=tuple((each.person, each.conversation) for each in action.ballots if each.state in ("asked", "shown")),
        salt=action.salt if action.ballots else "",
    )


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Index)


@cache
def _moments() -> TypeAdapter[Any]:
    return TypeAdapter(dict[str, datetime])
