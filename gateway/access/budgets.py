"""Usage by person, conversation, bot and day: the counts in the store, and the rest of a budget.

The counts are named ``usage/day/2026-11-25/person/telegram:123:456``. Days and months are in UTC. An amount of money is
a whole number of billionths of a US dollar, for exact sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, Self, TypeAlias

from gateway.config.limits import Budget, Window
from gateway.providers.base import UNPRICED_USD_PER_MILLION, Usage
from gateway.store.types import Spending

Subject: TypeAlias = Literal["person", "conversation", "bot"]

KEPT_DAYS: Final = 62
"""The retention of usage in days: this month and the last month."""
WARNING_SHARE: Final = 0.8
"""The share of a budget at which the operator is warned."""
_NANOS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCount:
    """A count of usage. `unpriced_tokens` are the tokens of unknown price, left out of `cost_usd`."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    cache_write_tokens: int = 0
    unpriced_tokens: int = 0
    cost_nanos: int = 0
    saved_nanos: int = 0

    @classmethod
    def of_call(cls, usage: Usage) -> Self:
        """Return the count of one call to the model."""
        return cls(
            calls=1,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_prompt_tokens=usage.cached_prompt_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            unpriced_tokens=usage.total_tokens if usage.cost_usd is None else 0,
            cost_nanos=round((usage.cost_usd or 0.0) * _NANOS),
            saved_nanos=round((usage.saved_usd or 0.0) * _NANOS),
        )

    @classmethod
    def of_counts(cls, counts: Iterable[Mapping[str, int]]) -> Self:
        """Return the sum of stored counts. Fields of another release are ignored."""
        stored = list(counts)
        return cls(**{name: sum(count.get(name, 0) for count in stored) for name in cls.__dataclass_fields__})

    def amounts(self) -> dict[str, int]:
        """Return the fields other than 0, in the stored form."""
        return {name: amount for name in self.__dataclass_fields__ if (amount := getattr(self, name))}

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_usd(self) -> float:
        return self.cost_nanos / _NANOS

    @property
    def saved_usd(self) -> float:
        return self.saved_nanos / _NANOS


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A budget and its used part in the present window."""

    budget: Budget
    used: float
    """In the unit of the budget."""
    ends: datetime
    """The end of the window, when the budget opens again."""

    @property
    def used_up(self) -> bool:
        return self.used >= self.budget.most

    @property
    def near_end(self) -> bool:
        """True from the share of the budget on at which the operator is warned."""
        return self.used >= self.budget.most * WARNING_SHARE

    @property
    def left(self) -> float:
        return max(0.0, self.budget.most - self.used)


def count_name(window: Window, at: datetime, subject: Subject, name: str = "") -> str:
    """Return the name of the count of a subject at a moment in UTC. The bot of a store needs no `name`."""
    stamp = f"{at:%Y-%m-%d}" if window == "day" else f"{at:%Y-%m}"
    return f"usage/{window}/{stamp}/{subject}" + (f"/{name}" if subject != "bot" else "")


def spendings(usage: Usage, *, person: str, conversation: str, at: datetime) -> list[Spending]:
    """Return the additions to the counts for one call to the model. A call without usage has none."""
    if not (usage.total_tokens or usage.cost_usd or usage.saved_usd):
        return []
    amounts = UsageCount.of_call(usage).amounts()
    names = [
        count_name("day", at, "person", person),
        count_name("month", at, "person", person),
        count_name("day", at, "conversation", conversation),
        count_name("day", at, "bot"),
        count_name("month", at, "bot"),
    ]
    return [Spending(name=name, amounts=amounts, keep_seconds=KEPT_DAYS * 86_400.0) for name in names]


def standings(
    budgets: Iterable[Budget], counts: Mapping[str, Mapping[str, int]], *, person: str, at: datetime
) -> list[Spent]:
    """Return the standing of budgets for a person at a moment, by the counts under the names of `count_name`."""
    return [
        Spent(
            budget=budget,
            used=_used(budget, counts.get(count_name(budget.window, at, budget.holder, person), {})),
            ends=window_end(budget.window, at),
        )
        for budget in budgets
    ]


def _used(budget: Budget, stored: Mapping[str, int]) -> float:
    count = UsageCount.of_counts([stored])
    if budget.unit == "tokens":
        return count.total_tokens
    return count.cost_usd + count.unpriced_tokens * UNPRICED_USD_PER_MILLION / 1_000_000


def window_end(window: Window, at: datetime) -> datetime:
    """Return the end of the day or month of a moment in UTC."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if window == "day":
        return midnight + timedelta(days=1)
    return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
