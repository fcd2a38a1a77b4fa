"""The actions and messages of a history, as the witness notes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = [
    "ANSWER_WINDOW",
    "APPROVERS",
    "ASKED_ELSEWHERE",
    "ASKED_ONCE",
    "BRAKED",
    "DELIVERED",
    "HELD",
    "MOST_SHOWINGS",
    "NEAR",
    "PERMITTED",
    "SIGNERS",
    "STANDIN",
    "TTL",
    "Brake",
    "Effect",
    "Finished",
    "Listing",
    "Selected",
    "Showing",
    "Shown",
    "ShownButton",
    "Thing",
]

ANSWER_WINDOW, TTL = 60.0, 900.0
NEAR = 2.0
"""Seconds within which the witness does not know the order of two moments."""
APPROVERS = frozenset({"bob", "cleo"})
"""The approvers of ``send``. Both must approve, for any requester."""
SIGNERS, STANDIN = frozenset({"bob", "cleo", "dan"}), "eve"
"""Two signers must sign, each in their own chat. The stand-in counts once asked."""
ASKED_ELSEWHERE = frozenset({"sign", "share"})
"""The tools with approvers asked in their own chats."""
PERMITTED = frozenset({"copy", "stamp"})
"""The tools that people may allow for a while."""
ASKED_ONCE = ASKED_ELSEWHERE | PERMITTED
"""Tools called only once with an invoice. The invoice then identifies the action of a message."""
BRAKED = 3600.0
"""Seconds after an approver's no in which only a press of the requester brings the like to the approvers."""
DELIVERED = 600.0
"""Seconds after which an undelivered question is dropped."""
HELD = 30.0
"""Seconds after which the end of an item is reported, even while other items of the plan run."""
MOST_SHOWINGS = 3


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
    """True: the gateway surely knows of the showing."""


@dataclass(eq=False)
class Thing:
    """An action that people were asked about, as the witness saw it."""

    place: str
    """The chat of the request."""
    tool: str
    invoice: str
    folder: str
    requester: str
    release: int
    """The release of the question."""
    doubts: int
    """The witness's number of doubts at the ask."""
    codes: dict[str, str] = field(default_factory=dict)
    """Place -> the code that answers there."""
    standing_code: str = ""
    """The code that also gives the permission."""
    showings: list[Showing] = field(default_factory=list)
    said_yes: set[str] = field(default_factory=set)
    """The people with a valid yes in time."""
    tried: Counter[str] = field(default_factory=Counter)
    """Place -> the number of yes answers there, counted or not."""
    refused_by: dict[str, float] = field(default_factory=dict)
    """The people with a counted no -> the moment of the first no."""
    changing: int | None = None
    """The witness's number of doubts at the requester's change; None: no change is under way."""
    said_no: int | None = None
    """The witness's number of doubts at the last counted no."""
    ended: bool = False
    """True: people were told that the action will not happen."""
    given_up: bool = False
    """True: the requester asked for something else after the question."""
    replaced: bool = False
    """True: another question has replaced this one."""
    changed: set[Literal["record", "index"]] = field(default_factory=set)
    """The parts changed without the key. After both, no genuine record names the action."""

    @property
    def code(self) -> str:
        return self.codes.get(self.place, "")

    @property
    def deciders(self) -> frozenset[str]:
        """Return the people with a counting yes."""
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
        """Return True if enough people have said yes, not counting `without`, the people without the right."""
        return len(self.said_yes - (without if self.tool == "sign" else frozenset())) >= self.need

    def may_answer(self, person: str, place: str) -> bool:
        """Return True in the chat of the request, and for an approver in their own chat."""
        return place == self.place or (place == person and place in self.codes)


@dataclass(eq=False)
class Shown:
    """A message of the bot."""

    place: str
    text: str
    at: float
    things: list[Thing]
    buttons: list[ShownButton]
    total: int = 0
    """The number of the list's questions, if the message says that numbers answer the list."""
    which: Listing | None = None
    """The list in this message, if the message asks which question a yes or a no meant."""
    numbers: list[int] = field(default_factory=list)
    """The number of each question; 0 without a number."""
    edited: bool = False
    live: bool = False
    """True: the message has buttons that answer."""
    lost: bool = False
    """True: the answer with the message's number was lost."""
    known: bool = False
    """True: the gateway surely knows the message's number."""


@dataclass(eq=False)
class Listing:
    """A numbered list that a person can answer by number."""

    things: list[Thing]
    at: float
    intent: str = ""
    """The meaning of a number in the answer; empty: the list asks questions."""

    def named(self, numbers: Sequence[int], *, everything: bool) -> list[Thing]:
        """Return the confirmed actions of these numbers. `everything`: the words were "all" or "both".

        A list in brief does not show the whole effect of each action.
        """
        in_brief = self.intent and any(thing.tool in ("archive", "copy") for thing in self.things)
        if (
            self.intent == "cancel"
            or (everything and in_brief)
            or not set(numbers) <= {*range(1, 1 + len(self.things))}
        ):
            return []
        return [self.things[number - 1] for number in numbers]


@dataclass(frozen=True)
class Brake:
    """A refusal of this kind of action by an approver."""

    known: float
    """The moment of the note to the requester."""
    until: float


@dataclass(frozen=True)
class Finished:
    """A call has ended. The end must be reported in time."""

    what: tuple[str, str]
    at: float
    troubles: int
    shown: int
    """The number of messages before the report."""


@dataclass(eq=False)
class Selected:
    """Items of a plan confirmed by one answer, in order."""

    things: list[Thing]
    doubts: int


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An effect of a tool."""

    tool: str
    invoice: str
    folder: str
    key: str
    release: int
    copies: int = 1
