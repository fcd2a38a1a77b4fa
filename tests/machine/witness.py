"""A witness who stands beside the gateway: it sees what people do and what the platform shows, and counts effects.

It keeps its own book of it in plain lists and dicts, and shares no code with `gateway.pending`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ANSWER_WINDOW", "APPROVERS", "NEAR", "TTL", "Effect", "Shown", "Thing", "Witness"]

ANSWER_WINDOW, TTL = 60.0, 900.0
NEAR = 2.0
"""Seconds within which the witness does not know which of two moments was first."""
APPROVERS = frozenset({"bob", "cleo"})
"""Who approves what is sent, both of them, whoever asked."""
MOST_SHOWINGS = 3

_PROMPT = re.compile(
    r"\*\*(Pay|Archive|Move|Send|File) invoice “?(INV\\-\d+)”?(?: to folder (\d+))?\?\*\*.*?\*\*OK ([0-9A-Z]{4})\*\*",
    re.DOTALL,
)
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
_DONE = re.compile(r"(pay|archive|move|send|file) (INV-\d+) is settled")
_FAILED = ("This was confirmed, but ",)
_UNKNOWN = "This may or may not have happened"
_TOO_LATE = re.compile(r"This has expired and nothing was done\\?\. Ask again if you still want it\\?\.")
"""The answer to a late yes: about something that people may have been told of before."""


@dataclass(eq=False)
class Thing:
    """Something that people were asked about, as the witness saw it."""

    place: str
    tool: str
    invoice: str
    folder: str
    code: str
    requester: str
    release: int
    """The release that asked."""
    doubts: int
    """How often something had gone wrong when it was first shown."""
    showings: list[tuple[float, bool]] = field(default_factory=list)
    """When its prompt was shown, and whether the gateway is sure to know that it was."""
    said_yes: set[str] = field(default_factory=set)
    """Those who may and have said yes, in time and in a way that counts."""
    ended: bool = False
    """People were told that it will not happen."""
    changed: set[Literal["record", "index"]] = field(default_factory=set)
    """What somebody without the key has changed of it; after both, nothing genuine names it any more."""

    @property
    def deciders(self) -> frozenset[str]:
        """Return the people whose yes it needs, all of them."""
        return APPROVERS if self.tool == "send" else frozenset({self.requester})

    @property
    def yes(self) -> bool:
        return self.said_yes == self.deciders


@dataclass(eq=False)
class Shown:
    """A message of the bot."""

    place: str
    text: str
    at: float
    things: list[Thing]
    tokens: list[str]
    edited: bool = False


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a tool did."""

    tool: str
    invoice: str
    folder: str
    key: str
    release: int


class Witness:
    """The book."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.shown: list[Shown] = []
        self.things: list[Thing] = []
        self.asked_by: dict[str, str] = {}
        self.wanted: Counter[str] = Counter()
        """Invoice -> how often somebody asked for something about it."""
        self.tokens: dict[str, tuple[Thing, str]] = {}
        self.heard: dict[tuple[str, str], list[float]] = {}
        """(person, place) -> when they did something there."""
        self.effects: list[Effect] = []
        self.release = 1
        self.outlasted: set[tuple[str, str]] = set()
        """Tool and invoice of the calls that outlasted their timeout, and ended in a process that lives."""
        self.doubts = 0
        """How often a message may have to be sent again: answers lost, processes dead or standing still."""
        self._unsure: list[Thing] = []

    # ── what people do ──

    def wants(self, person: str, invoices: Sequence[str]) -> None:
        self.asked_by |= dict.fromkeys(invoices, person)
        self.wanted.update(invoices)

    def says_yes(self, thing: Thing, person: str, place: str, window: float, now: float) -> None:
        """It counts from those who decide, there, in time: from the first showing that the gateway knows of."""
        if person not in thing.deciders or place != thing.place:
            return
        known = [at for at, sure in thing.showings if sure]
        begun = known[0] if known and window == TTL else thing.showings[-1][0]
        if now <= begun + window + NEAR:
            thing.said_yes.add(person)

    def asked_last(self, person: str, place: str) -> Thing | None:
        """Return what a bare yes of this person would be the answer to."""
        here = [message for message in self.shown if message.place == place]
        if not here or len(here[-1].things) != 1 or place.startswith("#"):
            return None
        since = [at for at in self.heard.get((person, place), []) if at >= here[-1].at]
        return here[-1].things[0] if not since else None

    # ── what the platform shows ──

    def saw(self, place: str, text: str, tokens: list[str], edits: int | None, at: float) -> int:
        """Note a message, and return its number."""
        if edits is not None:
            self.shown[edits].edited = True
            return edits
        message = Shown(place, text, at, self._prompted(place, text, tokens, at), tokens)
        self.shown.append(message)
        if not message.things and text.startswith(_NOT_DONE):
            things = self._named(place, text.replace("\\", ""))
            repeated = _TOO_LATE.match(text) and any(thing.ended for thing in things)
            for thing in [thing for thing in things if not thing.ended and not repeated][:1]:
                thing.ended = True
        return len(self.shown) - 1

    def is_sure(self, *, died: bool) -> None:
        """What was sent by a process that lived on is known to the gateway."""
        for thing in self._unsure:
            if not died:
                thing.showings[-1] = (thing.showings[-1][0], True)
        self._unsure = []

    def _prompted(self, place: str, text: str, tokens: list[str], at: float) -> list[Thing]:
        things = []
        for verb, escaped, folder, code in _PROMPT.findall(text) if tokens else ():
            tool, invoice = verb.lower(), escaped.replace("\\", "")
            thing = self._thing(place, tool, invoice, folder, code)
            thing.showings.append((at, False))
            if len(thing.showings) > MOST_SHOWINGS + self.doubts - thing.doubts:
                self.violations.append(f"{tool} {invoice}: shown {len(thing.showings)} times")
            things.append(thing)
        self._unsure += things
        for number, token in enumerate(tokens[: 2 * len(things)]):  # those for all items of a plan follow
            self.tokens[token] = (things[number // 2], "cancel" if number % 2 else "confirm")
        return things

    def _thing(self, place: str, tool: str, invoice: str, folder: str, code: str) -> Thing:
        for thing in self.things:
            if (thing.place, thing.tool, thing.invoice, thing.code) == (place, tool, invoice, code):
                if thing.folder != folder:
                    self.violations.append(f"{tool} {invoice}: its question changed")
                return thing
        thing = Thing(place, tool, invoice, folder, code, self.asked_by[invoice], self.release, self.doubts)
        self.things.append(thing)
        if sum(each.invoice == invoice for each in self.things) > self.wanted[invoice]:
            self.violations.append(f"{tool} {invoice}: asked though nobody wanted it again")
        return thing

    def _named(self, place: str, text: str) -> list[Thing]:
        """Return what a message is about. A record that somebody has changed is told by its code alone."""
        return [
            thing
            for thing in self.things
            if thing.place == place
            and (
                re.search(rf"{thing.invoice}(?!\d)", text)
                or (text.startswith((_TAMPERED, _UNKNOWN)) and text.endswith(f": {thing.code}"))
            )
        ]

    # ── what tools do ──

    def happened(self, effect: Effect) -> None:
        what = f"{effect.tool} {effect.invoice}"
        asked = [thing for thing in self.things if (thing.tool, thing.invoice) == (effect.tool, effect.invoice)]
        agreed = [thing for thing in asked if thing.yes]
        if not asked:
            self.violations.append(f"{what}: nobody was ever shown that")
        elif not agreed:
            self.violations.append(f"{what}: nobody who may has said yes in time")
        elif all(thing.ended for thing in asked):
            self.violations.append(f"{what}: people had been told that it will not happen")
        elif effect.folder not in [thing.folder for thing in agreed]:
            self.violations.append(f"{what}: folder {effect.folder} was not the one that was shown")
        elif effect.release not in [thing.release for thing in agreed]:
            self.violations.append(f"{what}: done by a release that was not the one that asked")
        self.effects.append(effect)
        times = sum(effect.key == other.key for other in self.effects)
        if times > (3 if effect.tool == "archive" else 1):
            self.violations.append(f"{what}: happened {times} times on one yes")
        same = [other for other in self.effects if (other.tool, other.invoice) == (effect.tool, effect.invoice)]
        if len({other.key for other in same}) > max(1, len(agreed)):
            self.violations.append(f"{what}: happened for more actions than were confirmed")

    # ── the end ──

    def check_everything_is_told(self, aside: str) -> None:
        """People know what became of everything they were shown, or what told them lies `aside`."""
        for thing in self.things:
            told = [
                message
                for message in self.shown
                if not message.things and thing in self._named(thing.place, message.text.replace("\\", ""))
            ]
            changed = [message for message in self.shown if thing in message.things and message.edited]
            if not told and not changed and thing.invoice not in aside and len(thing.changed) < 2:
                self.violations.append(f"{thing.tool} {thing.invoice}: nobody was told what became of it")

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
        if message.things or message.place != thing.place:
            return None
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
