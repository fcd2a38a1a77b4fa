"""A witness who stands beside the gateway: it sees what people do and what the platform shows, and counts effects.

It keeps its own book of it in plain lists and dicts, and shares no code with `gateway.pending`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tests.machine.permissions import Permissions

__all__ = [
    "ANSWER_WINDOW",
    "APPROVERS",
    "ASKED_ELSEWHERE",
    "ASKED_ONCE",
    "NEAR",
    "SIGNERS",
    "STANDIN",
    "TTL",
    "Effect",
    "Shown",
    "ShownButton",
    "Thing",
    "Witness",
]

ANSWER_WINDOW, TTL = 60.0, 900.0
NEAR = 2.0
"""Seconds within which the witness does not know which of two moments was first."""
APPROVERS = frozenset({"bob", "cleo"})
"""Who approves what is sent, both of them, whoever asked."""
SIGNERS, STANDIN = frozenset({"bob", "cleo", "dan"}), "eve"
"""Two of them sign, each in their own chat; the stand-in counts once she is asked."""
ASKED_ELSEWHERE = frozenset({"sign", "share"})
"""The tools whose approvers are asked in their own chats."""
ASKED_ONCE = ASKED_ELSEWHERE | {"copy"}
"""What is asked for once only with one invoice, so that an invoice tells which action a message is about."""
MOST_SHOWINGS = 3

_VERBS = "pay|archive|move|send|file|sign|share|copy"
_PROMPT = re.compile(
    rf"\*\*({_VERBS}) invoice “?(INV\\-\d+)”?(?: to folder “?(\d+)”?)?\?\*\*.*?\*\*(?:OK|NO) ([0-9A-Z]{{4}})\*\*",
    re.DOTALL | re.IGNORECASE,
)
_STANDING = re.compile(r"\*\*OK ([0-9A-Z]{4})\*\* to also allow it")
_REPLACED = "Changed meanwhile"
_VOTE_COUNTED = "Your yes is counted"
_BEGUN_BY_PERMISSION = "I am doing it, as you allowed until"
_DONE_BY_PERMISSION = "Done under your permission"
_TAMPERED = "The record of this was changed from outside the chat"
_NOT_DONE = (
    "Not done: ",
    "This has expired and nothing was done",
    _TAMPERED,
    "This is no longer as it was shown",
    "It could not be checked whether",
    "The bot has been changed since",
    "This was confirmed, but could not be started",
)
_DONE = re.compile(rf"({_VERBS}) (INV-\d+) is settled")
_FAILED = ("This was confirmed, but ",)
_UNKNOWN = "This may or may not have happened"
_TOO_LATE = re.compile(r"This has expired and nothing was done\\?\. Ask again if you still want it\\?\.")
"""The answer to a late yes: about something that people may have been told of before."""


def _invoice_in(text: str) -> str:
    found = re.search(r"INV-\d+", text)
    return found[0] if found is not None else ""


class ShownButton(NamedTuple):
    """A button under a message."""

    token: str
    style: str
    label: str


@dataclass(eq=False)
class Showing:
    """One showing of a question."""

    place: str
    at: float
    sure: bool = False
    """The gateway is sure to know that it was shown."""


@dataclass(eq=False)
class Thing:
    """Something that people were asked about, as the witness saw it."""

    place: str
    """Where it was asked for."""
    tool: str
    invoice: str
    folder: str
    requester: str
    release: int
    """The release that asked."""
    doubts: int
    """How often something had gone wrong when it was first shown."""
    codes: dict[str, str] = field(default_factory=dict)
    """Place -> the code with which it is answered there."""
    standing_code: str = ""
    """The code that also gives the permission."""
    showings: list[Showing] = field(default_factory=list)
    said_yes: set[str] = field(default_factory=set)
    """Those who may and have said yes, in time and in a way that counts."""
    tried: Counter[str] = field(default_factory=Counter)
    """Place -> how often somebody said yes there, whether it counts or not."""
    said_no: int | None = None
    """How often something had gone wrong when somebody who may said no in a way that counts."""
    ended: bool = False
    """People were told that it will not happen."""
    replaced: bool = False
    """Another question has taken its place."""
    changed: set[Literal["record", "index"]] = field(default_factory=set)
    """What somebody without the key has changed of it; after both, nothing genuine names it any more."""

    @property
    def code(self) -> str:
        return self.codes.get(self.place, "")

    @property
    def deciders(self) -> frozenset[str]:
        """Return the people whose yes counts."""
        match self.tool:
            case "send":
                return APPROVERS
            case "sign":
                asked = {STANDIN} if STANDIN in self.codes else set()
                return frozenset((SIGNERS - {self.requester}) | asked)
            case "share":
                return APPROVERS | {self.requester}
        return frozenset({self.requester})

    @property
    def need(self) -> int:
        return 2 if self.tool in ("send", "sign", "share") else 1

    def is_agreed(self, without: frozenset[str]) -> bool:
        """Return True if enough people have said yes, `without` those who have lost the right."""
        return len(self.said_yes - (without if self.tool == "sign" else frozenset())) >= self.need

    def may_answer(self, person: str, place: str) -> bool:
        """Return True where it was asked for, and for an approver in their own chat."""
        return place == self.place or (place == person and place in self.codes)


@dataclass(eq=False)
class Shown:
    """A message of the bot."""

    place: str
    text: str
    at: float
    things: list[Thing]
    tokens: list[str]
    edited: bool = False
    live: bool = False
    """It has buttons that answer."""
    lost: bool = False
    """The answer with its number was lost."""
    known: bool = False
    """The gateway is sure to know its number."""


@dataclass(eq=False)
class Selected:
    """Items of a plan that one answer confirms, in their order."""

    things: list[Thing]
    doubts: int


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a tool did."""

    tool: str
    invoice: str
    folder: str
    key: str
    release: int
    copies: int = 1


class Witness:
    """The book."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.shown: list[Shown] = []
        self.things: list[Thing] = []
        self.asked_by: dict[str, str] = {}
        self.asked_in: dict[str, str] = {}
        self.asked_at: dict[str, float] = {}
        self.copies_of: dict[str, int] = {}
        """Invoice -> how many copies of it somebody asked for."""
        self.wanted: Counter[str] = Counter()
        """Invoice -> how often somebody asked for something about it."""
        self.tokens: dict[str, tuple[Thing, str]] = {}
        self.for_all: dict[str, tuple[Shown, str]] = {}
        """The buttons for all items of a plan."""
        self.token_place: dict[str, str] = {}
        self.heard: dict[tuple[str, str], list[float]] = {}
        """(person, place) -> when they did something there."""
        self.effects: list[Effect] = []
        self.release = 1
        self.outlasted: set[tuple[str, str]] = set()
        """Tool and invoice of the calls that outlasted their timeout, and ended in a process that lives."""
        self.doubts = 0
        """How often a message may have to be sent again: answers lost, processes dead or standing still."""
        self.removed: frozenset[str] = frozenset()
        """Those who sign no longer."""
        self.permissions = Permissions()
        self.selected: list[Selected] = []
        self._inside: list[Thing] = []
        self._unsure: list[Shown] = []

    # ── what people do ──

    def wants(self, person: str, place: str, invoices: Sequence[str], at: float, *, copies: int = 1) -> None:
        self.copies_of |= dict.fromkeys(invoices, copies)
        self.asked_by |= dict.fromkeys(invoices, person)
        self.asked_in |= dict.fromkeys(invoices, place)
        self.asked_at |= dict.fromkeys(invoices, at)
        self.wanted.update(invoices)

    def says_yes(self, thing: Thing, person: str, place: str, window: float, now: float) -> bool:
        """It counts from those who decide, there, in time: from the first showing that the gateway knows of."""
        thing.tried[place] += 1
        if person not in thing.deciders or not thing.may_answer(person, place):
            return False
        counts = now <= self._begun(thing, place, window) + window + NEAR
        if counts:
            thing.said_yes.add(person)
        return counts

    def says_no(self, thing: Thing, person: str, place: str, now: float) -> None:
        """From the same people and the one who asked. What runs already does not end by it."""
        may = person in thing.deciders - self.removed or (person == thing.requester and place == thing.place)
        if may and thing.may_answer(person, place) and now <= thing.showings[-1].at + TTL - NEAR:
            thing.said_no = self.doubts

    def is_quiet(self) -> None:
        """Everything is worked off, and no process stands still: a no to what has not begun has ended it."""
        for thing in self.things:
            begun = any((effect.tool, effect.invoice) == (thing.tool, thing.invoice) for effect in self.effects)
            if thing.said_no == self.doubts and not begun and thing.tool not in ("archive", "file"):
                thing.ended = True

    def _begun(self, thing: Thing, place: str, window: float) -> float:
        """Return when the time to answer began, at the latest."""
        known: dict[str, float] = {}
        for showing in thing.showings:
            if showing.sure:
                known.setdefault(showing.place, showing.at)
        if known and window == TTL:
            return max(known.values())
        return max(showing.at for showing in thing.showings if window == TTL or showing.place == place)

    def asked_last(self, person: str, place: str) -> Thing | None:
        """Return what a bare yes of this person would be the answer to."""
        here = self._last_words(person, place)
        return here.things[0] if here is not None and len(here.things) == 1 else None

    def plan_asked_last(self, person: str, place: str) -> list[Thing]:
        """Return the items whose numbers this person can write."""
        here = self._last_words(person, place)
        return here.things if here is not None and len(here.things) > 1 else []

    def selects(self, things: Sequence[Thing]) -> None:
        """One answer confirms these items of a plan, which are in their order."""
        self.selected.append(Selected([thing for thing in things if thing.tool in ("pay", "move")], self.doubts))

    def _last_words(self, person: str, place: str) -> Shown | None:
        here = [message for message in self.shown if message.place == place]
        if not here or not here[-1].things or place.startswith("#"):
            return None
        since = [at for at in self.heard.get((person, place), []) if at >= here[-1].at]
        return here[-1] if not since else None

    # ── what the platform shows ──

    def saw(
        self, place: str, text: str, buttons: Sequence[ShownButton], edits: int | None, at: float, *, lost: bool = False
    ) -> int:
        """Note a message, and return its number. `lost`: the gateway does not learn it."""
        live = any(button.style != "plain" for button in buttons)
        if edits is not None:
            message = self.shown[edits]
            message.edited, message.live = True, live
            if _REPLACED in text and len(message.things) == 1:
                message.things[0].replaced = True
            return edits
        things = self._prompted(place, text, at) if live else []
        message = Shown(place, text, at, things, [button.token for button in buttons], live=live)
        self.shown.append(message)
        message.lost = lost
        self._unsure.append(message)
        self._note_buttons(message, buttons)
        if not things and text.startswith(_NOT_DONE):
            named = self._named(place, text.replace("\\", ""))
            repeated = _TOO_LATE.match(text) and any(thing.ended for thing in named)
            for thing in [thing for thing in named if not thing.ended and not repeated][:1]:
                thing.ended = not text.startswith(_TAMPERED) or place == thing.place  # one ballot is not the others
        return len(self.shown) - 1

    def is_sure(self, *, died: bool) -> None:
        """What was sent by a process that lived on is known to the gateway."""
        for message in self._unsure if not died else ():
            message.known = not message.lost
            for thing in message.things:
                for showing in thing.showings:
                    showing.sure = showing.sure or (showing.place, showing.at) == (message.place, message.at)
        self._unsure = []

    def _prompted(self, place: str, text: str, at: float) -> list[Thing]:
        things = []
        for verb, escaped, folder, code in _PROMPT.findall(text):
            tool, invoice = verb.lower(), escaped.replace("\\", "")
            thing = self._thing(place, tool, invoice, folder, code)
            thing.showings.append(Showing(place, at))
            times = sum(showing.place == place for showing in thing.showings)
            if times > MOST_SHOWINGS + self.doubts - thing.doubts:
                self.violations.append(f"{tool} {invoice}: shown {times} times")
            if (standing := _STANDING.search(text)) is not None:
                thing.standing_code = standing[1]
            things.append(thing)
        return things

    def _note_buttons(self, message: Shown, buttons: Sequence[ShownButton]) -> None:
        things = message.things
        codes = {thing.codes[message.place]: thing for thing in things}
        for token, style, label in buttons if things else ():
            self.token_place[token] = message.place
            intent = "cancel" if style == "cancel" else "confirm"
            if label.endswith(" all"):
                self.for_all[token] = (message, intent)
            elif style == "plain":
                self.tokens[token] = (things[0], "change" if label == "Change" else "standing")
            elif len(things) == 1 or label.split()[-1] in codes:
                self.tokens[token] = (codes.get(label.split()[-1], things[0]), intent)

    def _thing(self, place: str, tool: str, invoice: str, folder: str, code: str) -> Thing:
        for thing in self.things:
            here = thing.codes.setdefault(place, code) if self._is_asked(thing, tool, invoice, place) else None
            if here == code:
                if thing.folder != folder:
                    self.violations.append(f"{tool} {invoice}: its question changed")
                return thing
        asked_in = self.asked_in[invoice] if tool in ASKED_ELSEWHERE else place
        thing = Thing(asked_in, tool, invoice, folder, self.asked_by[invoice], self.release, self.doubts, {place: code})
        self.things.append(thing)
        if sum(each.invoice == invoice for each in self.things) > self.wanted[invoice]:
            self.violations.append(f"{tool} {invoice}: asked though nobody wanted it again")
        return thing

    @staticmethod
    def _is_asked(thing: Thing, tool: str, invoice: str, place: str) -> bool:
        return (thing.tool, thing.invoice) == (tool, invoice) and (place == thing.place or tool in ASKED_ELSEWHERE)

    def _named(self, place: str, text: str) -> list[Thing]:
        """Return what a message is about. A record that somebody has changed is told by its code alone."""
        return [
            thing
            for thing in self.things
            if place in (thing.place, *thing.codes)
            and (
                (thing.invoice in text and re.search(rf"{thing.invoice}(?!\d)", text))
                or (text.startswith((_TAMPERED, _UNKNOWN)) and text.endswith(f": {thing.codes.get(place)}"))
            )
        ]

    # ── what tools do ──

    def happened(self, effect: Effect) -> None:
        what = f"{effect.tool} {effect.invoice}"
        asked = [thing for thing in self.things if (thing.tool, thing.invoice) == (effect.tool, effect.invoice)]
        agreed = [thing for thing in asked if thing.is_agreed(self.removed)]
        if effect.tool == "copy" and not agreed and self._is_permitted(effect):
            pass
        elif not asked:
            self.violations.append(f"{what}: nobody was ever shown that")
        elif not agreed:
            self.violations.append(f"{what}: nobody who may has said yes in time")
        elif all(thing.ended for thing in asked):
            self.violations.append(f"{what}: people had been told that it will not happen")
        elif all(thing.replaced for thing in asked):
            self.violations.append(f"{what}: another question had taken its place")
        elif effect.folder not in [thing.folder for thing in agreed]:
            self.violations.append(f"{what}: folder {effect.folder} was not the one that was shown")
        elif effect.release not in [thing.release for thing in agreed]:
            self.violations.append(f"{what}: done by a release that was not the one that asked")
        if effect.copies != self.copies_of.get(effect.invoice, effect.copies):
            self.violations.append(f"{what}: {effect.copies} copies were not what somebody had asked for")
        self._check_order(effect)
        self.effects.append(effect)
        times = sum(effect.key == other.key for other in self.effects)
        if times > (3 if effect.tool == "archive" else 1):
            self.violations.append(f"{what}: happened {times} times on one yes")
        same = [other for other in self.effects if (other.tool, other.invoice) == (effect.tool, effect.invoice)]
        if len({other.key for other in same}) > max(1, len(agreed)):
            self.violations.append(f"{what}: happened for more actions than were confirmed")

    def _is_permitted(self, effect: Effect) -> bool:
        """Return True if the one who asked for it here has allowed it for a while."""
        where = self.asked_by[effect.invoice], self.asked_in[effect.invoice], effect.folder
        return self.permissions.use(where, effect.key, effect.release, self.asked_at[effect.invoice], effect.copies)

    def begins(self, tool: str, invoice: str) -> Thing | None:
        """A tool is called: no other item of its plan may be under way, unless something has gone wrong since."""
        thing = next((each for each in self.things if (each.tool, each.invoice) == (tool, invoice)), None)
        for selected in self.selected:
            if thing in selected.things and selected.doubts == self.doubts:
                self.violations += [
                    f"{tool} {invoice}: began while {other.invoice} of its plan was under way"
                    for other in self._inside
                    if other in selected.things and other is not thing
                ]
        if thing is not None:
            self._inside.append(thing)
        return thing

    def ends(self, thing: Thing | None) -> None:
        if thing is not None:
            self._inside.remove(thing)

    def _check_order(self, effect: Effect) -> None:
        done = {(each.tool, each.invoice) for each in self.effects}
        for selected in self.selected:
            items = [(thing.tool, thing.invoice) for thing in selected.things]
            mine = (effect.tool, effect.invoice)
            if selected.doubts == self.doubts and mine in items and mine not in done:
                later = done & {*items[items.index(mine) + 1 :]}
                self.violations += [f"{effect.tool} {effect.invoice}: after {each} of its plan" for _, each in later]

    # ── the end ──

    def check_everything_is_told(self, aside: str) -> None:
        """People know what became of everything they were shown, or what told them lies `aside`."""
        for thing in self.things:
            for place in dict.fromkeys([thing.place, *thing.codes]):
                there = [message for message in self.shown if message.place == place or place == thing.place]
                told = [
                    message
                    for message in there
                    if not message.things and thing in self._named(place, message.text.replace("\\", ""))
                ]
                changed = [message for message in there if thing in message.things and message.edited]
                if not told and not changed and thing.invoice not in aside and len(thing.changed) < 2:
                    self.violations.append(f"{thing.tool} {thing.invoice}: nobody was told what became of it")
        self._check_permitted_calls(aside)

    def _check_permitted_calls(self, aside: str) -> None:
        """What a permission decided is told when it begins and by its end, and as done only if it is done."""
        texts = [message.text.replace("\\", "") for message in self.shown if not message.things]
        begun = {_invoice_in(text) for text in texts if text.startswith(_BEGUN_BY_PERMISSION)}
        ended = {_invoice_in(text) for text in texts if not text.startswith(_BEGUN_BY_PERMISSION)}
        used = {effect.invoice for effect in self.effects if self.permissions.is_used_by(effect.key)}
        said_done = {_invoice_in(text) for text in texts if text.startswith(_DONE_BY_PERMISSION)}
        happened = {effect.invoice for effect in self.effects if effect.tool == "copy"}
        changed = any(thing.changed for thing in self.things)
        for invoice in sorted(used - begun):
            if invoice not in aside:
                self.violations.append(f"copy {invoice}: nobody was told that it was permitted")
        for invoice in sorted(begun - ended):
            if invoice not in aside and not changed:
                self.violations.append(f"copy {invoice}: permitted, and its end was told nobody")
        for invoice in sorted(said_done - happened):
            self.violations.append(f"copy {invoice}: told done under a permission, and it never happened")

    def check_every_prompt_is_settled(self) -> None:
        """No button answers any more in a message whose number the gateway knows."""
        for message in self.shown:
            if message.known and message.live and message.things and not any(each.changed for each in message.things):
                names = ", ".join(f"{thing.tool} {thing.invoice}" for thing in message.things)
                self.violations.append(f"{names}: a question in {message.place} is open for ever")

    def check_approvers_are_told_once(self) -> None:
        """An approver reads an outcome once in their own chat, and that a yes is counted once for each yes."""
        for thing in self.things:
            for place in [place for place in thing.codes if place != thing.place]:
                again = self.doubts - thing.doubts
                here = [m.text.replace("\\", "") for m in self.shown if m.place == place and not m.things]
                told = Counter(text for text in here if text.startswith(f"**{self._headline(thing)}**\n"))
                counted = [text for text in here if text.startswith(_VOTE_COUNTED) and self._headline(thing) in text]
                if any(times > 1 + again for times in told.values()):
                    self.violations.append(f"{thing.tool} {thing.invoice}: its end was told twice in {place}")
                if len(counted) > thing.tried[place] + again:
                    self.violations.append(f"{thing.tool} {thing.invoice}: a yes was counted twice in {place}")

    @staticmethod
    def _headline(thing: Thing) -> str:
        return f"{thing.tool.capitalize()} invoice “{thing.invoice}”"

    def check_all_that_was_told_is_true(self) -> None:
        """Told done, it happened; told not done or failed, it did not. Where two were asked for, both may be meant."""
        for thing in self.things:
            what = (thing.tool, thing.invoice)
            if sum((other.tool, other.invoice) == what for other in self.things) > 1:
                continue
            told = [end for message in self.shown if (end := self._end_of(thing, message)) is not None]
            happened = any((effect.tool, effect.invoice) == what for effect in self.effects)
            last = told[-1] if told else "unknown"
            if last == "done" and not happened:
                self.violations.append(f"{thing.tool} {thing.invoice}: told done, and it never happened")
            if last == "not done" and happened:
                self.violations.append(f"{thing.tool} {thing.invoice}: told not done, and it happened")
            if what in self.outlasted and last != "done" and not thing.changed:
                self.violations.append(f"{thing.tool} {thing.invoice}: its late end was told nobody")

    def _end_of(self, thing: Thing, message: Shown) -> Literal["done", "not done", "unknown"] | None:
        """Return what a message says became of this thing; None: nothing."""
        text = message.text.replace("\\", "")
        if message.things or message.place not in (thing.place, *thing.codes):
            return None
        if message.place != thing.place and text.startswith(f"**{self._headline(thing)}**\n"):
            note = text.partition("\n")[2]
            return "done" if note.startswith("✅") else "unknown" if note.startswith("❔") else "not done"
        if (thing.tool, thing.invoice) in _DONE.findall(text):
            return "done"
        if not re.search(rf"{thing.tool.capitalize()} invoice “?{thing.invoice}(?!\d)", text):
            return None
        if text.startswith(_UNKNOWN):
            return "unknown"
        says_no = text.startswith((*_NOT_DONE, *_FAILED)) and not text.startswith(_TAMPERED)
        return "not done" if says_no else None

    def effect_keys(self) -> Iterable[str]:
        """Return the idempotency keys of all effects."""
        return {effect.key for effect in self.effects}
