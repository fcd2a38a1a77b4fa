"""Budgets of the model's use: what one person, or the whole bot, may spend in a day or a month."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

__all__ = ["Budget", "Holder", "Unit", "Window", "parse_budgets"]

Holder: TypeAlias = Literal["person", "bot"]
Unit: TypeAlias = Literal["USD", "tokens"]
Window: TypeAlias = Literal["day", "month"]
"""A day or a month of the calendar, in UTC."""

_ENTRY: Final = re.compile(r"(person|bot)=(\d{1,12}(?:\.\d{1,6})?) (USD|tokens)/(day|month)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a holder may spend in a window. Each person has a `person` budget of their own."""

    holder: Holder
    most: float
    unit: Unit
    window: Window

    def __str__(self) -> str:
        return f"{self.holder}={self.most:.6f}".rstrip("0").rstrip(".") + f" {self.unit}/{self.window}"


def parse_budgets(text: str) -> tuple[Budget, ...]:
    """Parse ``person=1 USD/day, bot=50 USD/month, person=200000 tokens/day``. An empty text has no budgets.

    Raises ValueError, which says how to mend the text.
    """
    found: dict[tuple[Holder, Unit, Window], Budget] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        budget = _read(entry)
        if budget is None or (budget.holder, budget.unit, budget.window) in found:
            raise ValueError(
                "write a holder (person or bot), an amount above 0, USD or tokens, and day or month, each combination "
                f"once, for example person=1 USD/day, bot=50 USD/month; {entry[:40]!r} is not so"
            )
        found[budget.holder, budget.unit, budget.window] = budget
    return tuple(found.values())


def _read(entry: str) -> Budget | None:
    match = _ENTRY.fullmatch(entry)
    if match is None or not float(match[2]) or (match[3] == "tokens" and "." in match[2]):
        return None
    holder, unit, window = cast("Holder", match[1]), cast("Unit", match[3]), cast("Window", match[4])
    return Budget(holder=holder, most=float(match[2]), unit=unit, window=window)
