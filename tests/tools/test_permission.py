"""Whether a tool runs, asks or never runs, and why."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import Agent, ChannelAgent, Tool, ToolPolicy, tool
from gateway.tools import Governed, permission, unasked


def made(**options: Any) -> Tool:
    @tool(name="pay", **options)
    async def pay(amount: int = 1) -> None:
        """Pay something."""

    return pay


RULE = {"tool": "p*", "arg": "amount", "pattern": "9*"}


@pytest.mark.parametrize(
    ("options", "policy", "how", "why"),
    [
        ({}, None, "runs", "it has no confirm=, and is neither read_only nor idempotent"),
        ({"read_only": True}, None, "runs", "read_only"),
        ({"idempotent": True}, None, "runs", "idempotent"),
        ({"confirm": True}, None, "asks", "confirm="),
        ({"confirm": True, "channels": ["slack", "app"]}, None, "asks", "confirm=; only on app, slack"),
        ({}, {"allow": ["pay"]}, "runs", "allow list: 'pay'"),
        ({}, {"review": ["p*"]}, "asks", "review list: 'p*' of its policy"),
        ({"read_only": True}, {}, "asks", "not on any list of its policy"),
        ({"confirm": True}, {"deny": ["p*"]}, "never", "deny list: 'p*'"),
        ({}, {"allow": ["*"], "deny_when": [RULE]}, "runs", "allow list: '*'; never when amount matches '9*'"),
    ],
)
def test_each_permission_has_its_reason(
    options: dict[str, Any], policy: dict[str, Any] | None, how: str, why: str
) -> None:
    found = permission(made(**options), None if policy is None else ToolPolicy(**policy))
    assert (found.how, found.why) == (how, why)
    assert found.unasked is why.startswith("it has no confirm=")


def test_tool_without_a_question_is_named_with_the_mend() -> None:
    warning = unasked([Governed(made(), None), Governed(made(read_only=True), None)])
    assert warning is not None
    assert warning.startswith("pay: runs without asking anybody. Write @tool(confirm=...)")
    assert unasked([Governed(made(confirm=True), None)]) is None


def test_strict_bot_refuses_a_tool_without_a_question() -> None:
    with pytest.raises(ValueError, match=r"strict=True refuses it: pay: runs without asking anybody"):
        ChannelAgent(Agent([made()], provider="demo"), strict=True)
    ChannelAgent(Agent([made(confirm=True)], provider="demo"), strict=True)
