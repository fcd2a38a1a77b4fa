"""`ASKFIRST_BUDGETS`, as written by operators."""

from __future__ import annotations

import pytest

from channels import MissingSetting
from gateway.config.limits import Budget, parse_budgets
from gateway.config.settings import Settings

TEXT = "person=1 USD/day, bot=50 USD/month, person=200000 tokens/day"


def test_budgets_are_read_in_order() -> None:
    assert parse_budgets(TEXT) == (
        Budget(holder="person", most=1.0, unit="USD", window="day"),
        Budget(holder="bot", most=50.0, unit="USD", window="month"),
        Budget(holder="person", most=200_000.0, unit="tokens", window="day"),
    )
    assert parse_budgets(" ") == ()


def test_budget_reads_back_as_it_is_written() -> None:
    for text in (TEXT, "bot=0.000001 USD/day", "bot=0.5 USD/day", "person=100 tokens/month"):
        assert ", ".join(map(str, parse_budgets(text))) == text


@pytest.mark.parametrize(
    "text",
    [
        "person", "person=1", "person=1 USD", "person=1 EUR/day", "person=1 USD/week", "place=1 USD/day",
        "person=0 USD/day", "person=-1 USD/day", "person=1.5 tokens/day", "person=1e3 tokens/day", "person=1USD/day",
        "person=1 USD/day, person=2 USD/day", "person=١ USD/day",
    ],
)  # fmt: skip
def test_mistake_is_named_with_the_mend(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="for example person=1 USD/day"):
        parse_budgets(text)
    monkeypatch.setenv("ASKFIRST_BUDGETS", text)
    with pytest.raises(MissingSetting, match=r"ASKFIRST_BUDGETS.*for example"):
        Settings()


def test_budgets_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().budgets == ()
    monkeypatch.setenv("ASKFIRST_BUDGETS", TEXT)
    assert Settings().budgets == parse_budgets(TEXT)
