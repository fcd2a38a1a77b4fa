"""The counts of usage, and the state of budgets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.access.budgets import (
    UsageCount,
    count_name,
    spendings,
    standings,
    window_end,
)
from gateway.config.limits import Window, parse_budgets
from gateway.providers.base import UNPRICED_USD_PER_MILLION, Usage

AT = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
ANA = "telegram:1:2"


@pytest.mark.parametrize(
    ("window", "at", "ends"),
    [
        ("day", AT, datetime(2026, 12, 1, tzinfo=UTC)),
        ("month", AT, datetime(2026, 12, 1, tzinfo=UTC)),
        ("month", datetime(2026, 12, 31, 5, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        ("month", datetime(2028, 2, 1, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC)),
        ("day", datetime(2028, 2, 29, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC)),
    ],
)
def test_window_ends_with_its_day_or_month_of_utc(window: Window, at: datetime, ends: datetime) -> None:
    assert window_end(window, at) == ends
    assert count_name(window, ends - timedelta(microseconds=1), "bot") != count_name(window, ends, "bot")


def test_call_is_counted_for_person_conversation_and_bot() -> None:
    usage = Usage(prompt_tokens=90, completion_tokens=10, cached_prompt_tokens=40, cost_usd=0.000_000_5, saved_usd=0.25)
    found = spendings(usage, person=ANA, conversation="agent/telegram:1:2", at=AT)
    assert [each.name for each in found] == [
        "usage/day/2026-11-30/person/telegram:1:2",
        "usage/month/2026-11/person/telegram:1:2",
        "usage/day/2026-11-30/conversation/agent/telegram:1:2",
        "usage/day/2026-11-30/bot",
        "usage/month/2026-11/bot",
    ]
    assert {tuple(each.amounts.items()) for each in found} == {
        (
            ("calls", 1),
            ("prompt_tokens", 90),
            ("completion_tokens", 10),
            ("cached_prompt_tokens", 40),
            ("cost_nanos", 500),
            ("saved_nanos", 250_000_000),
        )
    }
    count = UsageCount.of_counts([found[0].amounts, found[0].amounts, {"of_a_newer_release": 1}])
    assert (count.calls, count.total_tokens, count.cost_usd, count.saved_usd) == (2, 200, 0.000_001, 0.5)


def test_call_without_usage_adds_no_spending() -> None:
    assert spendings(Usage(), person=ANA, conversation="c", at=AT) == []


def test_token_without_a_price_counts_as_money_and_is_no_cost() -> None:
    usage = Usage(prompt_tokens=60_000, completion_tokens=40_000)
    (stored,) = {each.name: each.amounts for each in spendings(usage, person=ANA, conversation="c", at=AT)[:1]}.values()
    count = UsageCount.of_counts([stored])
    assert (count.cost_usd, count.unpriced_tokens) == (0.0, 100_000)
    name = count_name("day", AT, "person", ANA)
    (money,) = standings(parse_budgets("person=1 USD/day"), {name: stored}, person=ANA, at=AT)
    assert money.used == pytest.approx(UNPRICED_USD_PER_MILLION / 10)
    assert money.used_up


def test_budget_is_used_up_at_its_amount() -> None:
    name = count_name("month", AT, "bot")
    for tokens, near, up in ((79, False, False), (80, True, False), (99, True, False), (100, True, True)):
        budgets = parse_budgets("bot=100 tokens/month")
        (standing,) = standings(budgets, {name: {"prompt_tokens": tokens}}, person=ANA, at=AT)
        assert (standing.near_end, standing.used_up, standing.left) == (near, up, 100 - tokens)
