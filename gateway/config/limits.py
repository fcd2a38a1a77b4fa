"""Limits of use and spending, for people, places and the whole bot, and the retention of data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Literal, Self, TypeAlias, cast

ONE_PLACE: Final = "webchat"
"""The channel counted as one place for all people: a visitor gets a new session, and so a new person, for free."""


def _entries(text: str) -> list[str]:
    """Return the entries of a setting, separated by commas."""
    return [entry for part in text.split(",") if (entry := part.strip())]


@dataclass(frozen=True, slots=True)
class Share:
    """Limits for a person, for a place (a chat, or a channel with all threads), and in all. None: no limit."""

    person: int | None = None
    place: int | None = None
    all: int | None = None

    def __str__(self) -> str:
        return "/".join("-" if value is None else str(value) for value in (self.person, self.place, self.all))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a bot, in the form of `ASKFIRST_LIMITS`.

    A bot without settings has limits on turns, strangers and streams only.
    """

    messages: Share = Share()
    """Messages and edits a minute. Messages over the limit are not read, and the author is notified."""
    turns: Share = Share(None, 32, 64)
    """Concurrent turns of a process. The web chat is one place: at most half of the turns beside other channels."""
    files: Share = Share()
    """Size of kept files in MiB, apart for files of tools, files sent by people, and uploads without a message.

    Among the files sent by people, the web chat is one place.
    """
    strangers: Share = Share(1)
    """Replies a day to people outside the allow-list."""
    sessions: Share = Share()
    """New sessions of the web chat a minute."""
    streams: Share = Share(6, None, 300)
    """Open streams of one session of the web chat, and of all sessions of a process.

    A server has 400 connections (`ClientLimits`): the rest is for webhooks.
    """

    @classmethod
    def usual(cls) -> Self:
        """Return the default limits of the setting."""
        return cls(
            messages=Share(60, 600, None),
            turns=Share(8, 32, 64),
            files=Share(200, 1_024, 2_048),
            strangers=Share(1, 1, 200),
            sessions=Share(None, None, 60),
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``messages=60/600/-,turns=8/32/64``: person, place, all. ``-`` is no limit.

        Limits missing in the text keep the default. Raises ValueError with the valid form and an example.
        """
        found: dict[str, Share] = {}
        names = [each.name for each in fields(cls)]
        for entry in _entries(text):
            name, _, values = entry.partition("=")
            numbers = values.split("/")
            right = len(numbers) == 3 and all(re.fullmatch(r"-|[1-9]\d{0,8}", number) for number in numbers)
            if name not in names or name in found or not right:
                raise ValueError(
                    f"write some of {', '.join(names)}, each once and with whole numbers by person, place and all, "
                    f"for example messages={cls.usual().messages} (- is no limit); {entry[:40]!r} is not so"
                )
            found[name] = Share(*(None if number == "-" else int(number) for number in numbers))
        if "turns" in found and found["turns"].all is None:
            raise ValueError("turns needs a number for all, for example turns=8/32/64: each takes memory")
        return cls(**({each: getattr(cls.usual(), each) for each in names} | found))

    def __str__(self) -> str:
        values: Mapping[str, Share] = {each.name: getattr(self, each.name) for each in fields(self)}
        return ",".join(f"{name}={share}" for name, share in values.items())


# ── budgets ──

Holder: TypeAlias = Literal["person", "bot"]
Unit: TypeAlias = Literal["USD", "tokens"]
Window: TypeAlias = Literal["day", "month"]
"""A day or a month of the calendar, in UTC."""

_BUDGET: Final = re.compile(r"(person|bot)=(\d{1,12}(?:\.\d{1,6})?) (USD|tokens)/(day|month)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most a holder may spend in a window. A `person` budget counts for each person alone."""

    holder: Holder
    most: float
    unit: Unit
    window: Window

    def __str__(self) -> str:
        return f"{self.holder}={self.most:.6f}".rstrip("0").rstrip(".") + f" {self.unit}/{self.window}"


def parse_budgets(text: str) -> tuple[Budget, ...]:
    """Parse ``person=1 USD/day, bot=50 USD/month, person=200000 tokens/day``. An empty text has no budgets.

    Raises ValueError with the valid form and an example.
    """
    found: dict[tuple[Holder, Unit, Window], Budget] = {}
    for entry in _entries(text):
        budget = _read_budget(entry)
        if budget is None or (budget.holder, budget.unit, budget.window) in found:
            raise ValueError(
                "write a holder (person or bot), an amount above 0, USD or tokens, and day or month, each combination "
                f"once, for example person=1 USD/day, bot=50 USD/month; {entry[:40]!r} is not so"
            )
        found[budget.holder, budget.unit, budget.window] = budget
    return tuple(found.values())


def _read_budget(entry: str) -> Budget | None:
    match = _BUDGET.fullmatch(entry)
    if match is None or not float(match[2]) or (match[3] == "tokens" and "." in match[2]):
        return None
    holder, unit, window = cast("Holder", match[1]), cast("Unit", match[3]), cast("Window", match[4])
    return Budget(holder=holder, most=float(match[2]), unit=unit, window=window)


# ── retention ──


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The retention of each kind of stored data in days, in the form of `ASKFIRST_RETENTION`."""

    transcript: int = 365
    """Messages of a conversation, as read again by the model."""
    visible: int = 365
    """Lines of a conversation, as shown to the person."""
    audit: int = 1095
    """Lines of the audit. The lines of an action stay at least as long as the action's record."""
    security: int = 90
    """Lines of the security log."""
    dead_letters: int = 90

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``transcript=30,audit=3650``: whole days by kind.

        Kinds missing in the text keep the default. Raises ValueError with the valid form and an example.
        """
        found: dict[str, int] = {}
        kinds = [each.name for each in fields(cls)]
        for entry in _entries(text):
            kind, _, days = entry.partition("=")
            if kind not in kinds or kind in found or not re.fullmatch(r"[1-9]\d{0,4}", days):
                raise ValueError(
                    f"write some of {', '.join(kinds)}, each once and with whole days from 1 to 99999, for example "
                    f"{cls()}; {entry[:40]!r} is not so"
                )
            found[kind] = int(days)
        return cls(**found)

    @property
    def transcript_seconds(self) -> float:
        """The retention of the records beside a transcript: memories, facts and people."""
        return self.transcript * 86_400.0

    def __str__(self) -> str:
        return ",".join(f"{kind}={days}" for kind, days in asdict(self).items())
