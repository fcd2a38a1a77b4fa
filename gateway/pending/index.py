"""The index of a conversation: its open, running and recently settled actions, and the last messages of both sides.

The index is sealed and contains the seal of each record's last write. Only exactly this record may be decided or
launched.
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
"""The time during which a settled action still takes a bare reply."""
AFTER_A_NO = timedelta(hours=1)
"""The time after an approver's no during which only a press of the requester asks the approvers again."""
_MOST_PRESSES = 3
_KEPT = 20
"""The number of settled entries kept to answer a late code or reply. Their records are kept longer."""
_STOPS_KEPT = 100
_SHOWINGS_KEPT = 10
_UNKNOWN_KEPT = timedelta(days=30)
_GOING: frozenset[State] = frozenset({"approved", "running", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """The entry of an action: its search keys, and the seal of its last record."""

    action_id: str
    seal: str = ""
    """The seal of the record's last write."""
    state: State = "pending"
    code: str
    requester: str
    approvers: tuple[str, ...] = ()
    language: str = "en"
    """Stored only if different from this default."""
    prompts: tuple[str, ...] = ()
    """The platform's ids of the messages of its prompts."""
    at: datetime
    """The time of the ask, the decision or the end."""
    refused: str = ""
    """The `same_ask` of a refused, expired, withdrawn or undelivered action; else empty."""
    fence: int = 0
    """The fence of the launch."""
    standing_code: str = ""
    """The code to confirm the action and to give its standing permission."""
    doubted: datetime | None = None
    """The time of a no in words not accepted as a decision. Words count only in answer to a showing queued later."""
    ballots: tuple[tuple[str, str], ...] = ()
    """Approver and conversation of each question in an approver's own chat, until the action is settled.

    An action with a changed record ends in these chats too.
    """
    salt: str = ""
    """The salt of an action with ballots, needed for the ids of the ballots, until the action is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPermission:
    """The reference to a standing permission, stored in the record of the action that gave the permission."""

    action_id: str
    person: str
    seal: str = ""
    """The seal of this record's last write. Any other record gives no permission.

    So neither an old index nor a restored old record revives a permission or resets its uses.
    """


_Named = TypeVar("_Named", IndexEntry, StandingPermission)


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """A message of the bot delivered while an action was open."""

    at: datetime
    """The time of its receipt."""
    queued: datetime
    shows: frozenset[str] = frozenset()
    """The ids of the actions asked in the message; empty if the message is no prompt."""
    tells: frozenset[str] = frozenset()
    """The ids of the actions reported as ended in the message."""
    alone: bool = False
    """True if the message holds only the gateway's questions, or its list of questions."""
    listed: tuple[str, ...] = ()
    """The ids of all actions of the numbered list, in order. The list may span several messages."""
    intent: Literal["confirm", "cancel"] | None = None
    """The meaning of a number in answer to a list about an ambiguous yes or no."""
    message_id: str | None = None
    sent_at: datetime | None = None
    """The platform's time of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproversNo:
    """An approver's refusal of a call: only a press of the requester asks the approvers again."""

    kind: str
    requester: str
    at: datetime
    pressed: tuple[datetime, ...] = ()
    """The times of the requester's presses to ask again, within the last hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEnd:
    """The end of an item of a plan, not reported yet."""

    action_id: str
    place: int
    state: State
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProgress:
    """The confirmed items of a running plan: the ends to report, and the questions to show afterwards."""

    plan: str
    ends: tuple[PlanEnd, ...] = ()
    late: bool = False
    """True after the first ends were reported before the others finished. Each later end is reported alone."""
    rest: tuple[str, ...] = ()
    """The ids of the open items to show again after the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The actions of a conversation in short: the open actions in the order of asking, the others newest last."""

    counter: int = 0
    """Grows with every write. A lower counter reveals an older copy of the index."""
    open: tuple[IndexEntry, ...] = ()
    going: tuple[IndexEntry, ...] = ()
    """The actions in state approved, running or unknown."""
    lately: tuple[IndexEntry, ...] = ()
    acted: Mapping[str, datetime] = field(default_factory=dict)
    """Person -> the time of the last message or press here."""
    stopped: Mapping[str, datetime] = field(default_factory=dict)
    """Person -> the time of the last /stop here, for the 100 most recent people."""
    all_stopped: datetime | None = None
    """The time of the last /stop no longer in `stopped`. This time applies to everybody."""
    said: tuple[Showing, ...] = ()
    """The last delivered messages of the bot, oldest first."""
    address: Address | None = None
    """The address of the conversation."""
    changing: Mapping[str, str] = field(default_factory=dict)
    """Person -> the id of the action being changed. Until the new ask, the person's messages describe the change."""
    reminded: Mapping[str, tuple[int, datetime]] = field(default_factory=dict)
    """Person -> the number of open actions in the last reminder under a reply, and the time of this reminder."""
    permissions: tuple[StandingPermission, ...] = ()
    refusals: tuple[ApproversNo, ...] = ()
    """The refusals of approvers within the last hour."""
    plans: tuple[PlanProgress, ...] = ()
    """The plans with ends not reported yet."""

    def to_text(self) -> str:
        """Return the text to store and seal."""
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
        """The entries with a record that may still change."""
        return (*self.open, *self.going)

    @property
    def settled(self) -> tuple[IndexEntry, ...]:
        """The decided or ended entries, the last first."""
        return tuple(sorted((*self.going, *self.lately), key=lambda entry: entry.at, reverse=True))

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """All entries: the open entries, then the settled entries, the last first."""
        return (*self.open, *self.settled)

    def seal_of(self, action_id: str) -> str | None:
        """Return the seal of the last write of an action's record; None for an action not in the index."""
        named: Sequence[IndexEntry | StandingPermission] = (*self.entries, *self.permissions)
        return next((each.seal for each in named if each.action_id == action_id), None)

    def last_asked_language(self) -> str | None:
        """Return the language of the newest question; None without any."""
        latest = max(self.entries, key=lambda entry: entry.at, default=None)
        return latest.language if latest is not None else None

    def get(self, action_id: str) -> IndexEntry | None:
        return next((entry for entry in self.entries if entry.action_id == action_id), None)

    def hears(self, person: str, at: datetime) -> bool:
        """Return True if a message of this person must be noted.

        This holds while an action is live, and after a recent end of an action until the person's next message.
        """
        if self.live:
            return True
        since = max(at - LATELY, self.acted.get(person, at - LATELY))
        return any(entry.at >= since for entry in self.lately)

    def has_stopped(self, person: str, since: datetime) -> bool:
        """Return True if this person certainly or possibly sent /stop after this time."""
        return any(when is not None and when > since for when in (self.stopped.get(person), self.all_stopped))

    def heeds(self, at: datetime) -> bool:
        """Return True if a message of the bot must be noted: an action is live, or was settled recently."""
        return bool(self.live) or any(entry.at >= at - LATELY for entry in self.lately)

    def by_code(self, code: str) -> IndexEntry | None:
        """Return the open entry with this code, else the last settled entry with the code."""
        return next((entry for entry in self.entries if code in (entry.code, entry.standing_code)), None)

    def by_prompt(self, message_id: str) -> tuple[IndexEntry, ...]:
        """Return the entries of the actions asked in this message of the bot."""
        return tuple(entry for entry in self.entries if message_id in entry.prompts)

    def beside(self, action_ids: frozenset[str]) -> frozenset[str]:
        """Return the ids of all actions asked in the same messages as these actions."""
        messages = {prompt for entry in self.entries if entry.action_id in action_ids for prompt in entry.prompts}
        return frozenset(entry.action_id for entry in self.entries if not messages.isdisjoint(entry.prompts))

    def refused_since(self, since: datetime, ask: str) -> bool:
        """Return True if an equal ask was refused, expired, withdrawn or undelivered since this time."""
        return any(entry.refused == ask and entry.at >= since for entry in self.lately)

    def last_said(
        self, at: datetime, follows: Callable[[Showing], bool] = lambda showing: False
    ) -> tuple[Showing, ...]:
        """Return the bot's last message before this time, or all messages of the last list, oldest first.

        A message being sent at this time counts if the answer `follows` the message in the platform's own order.
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
        """Return the last refusal of this tool and requester by an approver, within the last hour; else None."""
        found = [each for each in self.refusals if (each.kind, each.requester) == (kind, requester)]
        return next((each for each in found if now - each.at < AFTER_A_NO), None)

    def progress(self, plan: str) -> PlanProgress:
        """Return the progress of a plan; an empty progress without any held end."""
        return next((each for each in self.plans if each.plan == plan), PlanProgress(plan=plan))

    # ── changing ──

    def refused_by_approver(self, kind: str, requester: str, at: datetime) -> Index:
        """Return the index with a note of an approver's refusal of this tool."""
        known = self.approvers_refused(kind, requester, at)
        return self._with_refusal(
            replace(known, at=at) if known else ApproversNo(kind=kind, requester=requester, at=at)
        )

    def asked_again(self, kind: str, requester: str, at: datetime) -> Index | None:
        """Return the index with another press to ask the approvers again; None after three presses within an hour."""
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

        Code, requester and approvers stay as asked, and no prompt is removed: if a changed record could leave a prompt,
        a yes would seem to mean the other action of this prompt.
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
        elif action.ballots:
            entry = replace(entry, ballots=_asked(action), salt=action.salt)
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
        """Return the index to store, with the seals of the records in the same write.

        The counter becomes the time in microseconds, or the previous counter plus 1. So the counter also grows after an
        index was deleted at the end of its time to live.
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
        """Return the index with a note of a message or press of a person."""
        return replace(self, acted=dict(_noted(self.acted, person, at)[-_KEPT - 1 :]))

    def changed_by(self, person: str, action_id: str | None) -> Index:
        """Return the index with a note that the person is changing this action; None removes the note."""
        others = {other: held for other, held in self.changing.items() if other != person}
        return replace(self, changing=others if action_id is None else {**others, person: action_id})

    def doubted(self, action_ids: Iterable[str], at: datetime) -> Index:
        """Return the index with a note of a no in words about these open actions, not accepted as a decision."""
        ids = frozenset(action_ids)
        entries = tuple(replace(each, doubted=at) if each.action_id in ids else each for each in self.open)
        return replace(self, open=entries)

    def stopped_by(self, person: str, at: datetime) -> Index:
        """Return the index with a note of a person's /stop. A dropped note applies to everybody."""
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
        """Return the index with a delivered message of the bot, in the order of arrival."""
        said = sorted((*self.said, showing), key=lambda each: each.at)
        return replace(self, said=tuple(said[-_SHOWINGS_KEPT:]))


def same_ask(kind: str, args: Mapping[str, Json], requester: str) -> str:
    """Return a hash of tool, arguments and requester. Only equal asks share a hash."""
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
        ballots=_asked(action),
        salt=action.salt if action.ballots else "",
    )


def _asked(action: PendingAction) -> tuple[tuple[str, str], ...]:
    """Return name and conversation of each ballot sent."""
    return tuple((each.person, each.conversation) for each in action.ballots if each.state in ("asked", "shown"))


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Index)


@cache
def _moments() -> TypeAdapter[Any]:
    return TypeAdapter(dict[str, datetime])
