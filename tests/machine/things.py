"""The things that people are asked about, and the messages that ask, as the witness writes them down."""

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
"""Seconds within which the witness does not know which of two moments was first."""
APPROVERS = frozenset({"bob", "cleo"})
"""Who approves what is sent, both of them, whoever asked."""
SIGNERS, STANDIN = frozenset({"bob", "cleo", "dan"}), "eve"
"""Two of them sign, each in their own chat; the stand-in counts once she is asked."""
ASKED_ELSEWHERE = frozenset({"sign", "share"})
"""The tools whose approvers are asked in their own chats."""
PERMITTED = frozenset({"copy", "stamp"})
"""The tools that people may allow for a while."""
ASKED_ONCE = ASKED_ELSEWHERE | PERMITTED
"""What is asked for once only with one invoice, so that an invoice tells which action a message is about."""
BRAKED = 3600.0
"""Seconds after the no of an approver in which the like reaches the approvers only by a press of the requester."""
DELIVERED = 600.0
"""Seconds after which a question that has not arrived is none."""
HELD = 30.0
"""Seconds after which the end of an item of a plan is told, whatever the others do."""
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
    refused_by: dict[str, float] = field(default_factory=dict)
    """Those who have said no in a way that counts, and when they first did."""
    changing: int | None = None
    """How often something had gone wrong when the requester began to change it; None: they do not."""
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
    total: int = 0
    """How many questions the list has of which this message says that numbers answer it."""
    which: Listing | None = None
    """The list that it is, if it asks which question a yes or a no meant."""
    numbers: list[int] = field(default_factory=list)
    """The numbers of the questions, each 0 without one."""
    edited: bool = False
    live: bool = False
    """It has buttons that answer."""
    lost: bool = False
    """The answer with its number was lost."""
    known: bool = False
    """The gateway is sure to know its number."""


@dataclass(eq=False)
class Listing:
    """A numbered list that a person can answer by its numbers."""

    things: list[Thing]
    at: float
    intent: str = ""
    """What a number means in answer to it; empty: it is of questions."""

    def named(self, numbers: Sequence[int], *, everything: bool) -> list[Thing]:
        """Return what these numbers confirm. `everything`: they are said as all, or as both.

        A list in brief has not all that will be done about each.
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
    """An approver has refused something of this kind."""

    known: float
    """The requester was told so."""
    until: float


@dataclass(frozen=True)
class Finished:
    """A call has ended, and its end has to be told in time."""

    what: tuple[str, str]
    at: float
    troubles: int
    shown: int
    """How many messages there were."""


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
