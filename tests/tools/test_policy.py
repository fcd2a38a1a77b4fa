"""The tools that run, ask or never run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.tools import ToolPolicy

PAGE = ToolPolicy(
    allow=["search_*", "read_*"],
    review=["send_*", "create_*"],
    deny=["delete_*"],
    deny_when=[{"tool": "send_email", "arg": "to", "pattern": "*@external.com"}],
)


@pytest.mark.ledger("POL-01")
@pytest.mark.parametrize(
    ("name", "args", "decision"),
    [
        ("search_web", {}, "allow"),
        ("send_email", {"to": "a@b.com"}, "review"),
        ("delete_x", {}, "deny"),
        pytest.param("send_email", {"to": "x@external.com"}, "deny", marks=pytest.mark.ledger("POL-03")),
        ("send_email", {"to": "X@External.COM"}, "deny"),
        ("send_email", {"to": ["a@b.com", {"cc": "x@external.com"}]}, "deny"),
        ("send_email", {"cc": "x@external.com"}, "review"),
        ("foo", {}, "review"),
        pytest.param(" ", {}, "deny", marks=pytest.mark.ledger("POL-04")),
    ],
)
def test_policy_lists_are_applied_in_order(name: str, args: dict[str, Any], decision: str) -> None:
    assert PAGE.decide(name, args)[0] == decision


@pytest.mark.ledger("POL-02")
def test_the_stricter_list_wins() -> None:
    assert ToolPolicy(allow=["a"], deny=["a"]).decide("a", {})[0] == "deny"
    assert ToolPolicy(allow=["a"], review=["a"]).decide("a", {})[0] == "review"


@pytest.mark.ledger("POL-18")
def test_a_policy_is_made_of_any_mapping() -> None:
    stored = json.loads('{"allow": ["search_*"], "deny_when": [{"tool": "*", "arg": "to", "pattern": "x"}]}')
    policy = ToolPolicy(**stored)
    assert [policy.decide("search_web", args)[0] for args in ({}, {"to": "x"})] == ["allow", "deny"]


def test_the_reason_names_the_rule() -> None:
    assert PAGE.decide("delete_x", {}) == ("deny", "deny list: 'delete_*'")
    assert PAGE.decide("send_email", {"to": "x@external.com"})[1] == "to matches '*@external.com'"


@pytest.mark.ledger("POL-18")
@pytest.mark.parametrize(
    "options",
    [
        {"allow": "search_*"},
        {"deny": [""]},
        {"deny": [None]},
        {"deny_when": [{"tool": "a", "arg": "b"}]},
        {"deny_when": ["a"]},
    ],
)
def test_a_rule_that_could_never_match_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ToolPolicy(**options)
