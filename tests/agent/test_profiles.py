"""The settings for common uses."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import Agent, AgentConfig, LoggingObserver
from gateway.options import WrongOption
from tests.agent.scripted import Script


@pytest.mark.ledger("CFG-27")
def test_production_has_more_room_and_patience() -> None:
    config = AgentConfig.profile("production")
    assert (config.max_tokens, config.max_iterations, config.max_retries) == (2000, 10, 3)
    assert (config.retry_backoff_seconds, config.rate_limit_cooldown_seconds) == (2.0, 10.0)
    assert (config.request_timeout_seconds, config.tool_timeout_seconds) == (60.0, 30.0)
    assert (config.cost_warning_threshold, config.enable_analytics) == (0.5, True)


@pytest.mark.ledger("CFG-29", "CFG-30")
def test_dev_logs_everything_and_budget_spends_little() -> None:
    dev, budget = AgentConfig.profile("dev"), AgentConfig.profile("budget")
    assert dev.max_iterations == 3
    assert [type(observer) for observer in dev.observers] == [LoggingObserver]
    assert (budget.max_tokens, budget.max_iterations, budget.cost_warning_threshold) == (500, 3, 0.01)


def test_changes_win_and_mistakes_are_named() -> None:
    assert AgentConfig.profile("budget", max_tokens=9, name="ana").max_tokens == 9
    with pytest.raises(WrongOption, match="profile should be one of production, production_cached, dev, budget"):
        AgentConfig.profile("cheap")  # type: ignore[arg-type]
    with pytest.raises(WrongOption, match=r"max_token .*max_tokens"):
        AgentConfig.profile("budget", max_token=9)


@pytest.mark.ledger("MISC-13")
@pytest.mark.parametrize(
    ("strategy", "word"), [("react", "Before each tool call"), ("cot", "step by step"), ("plan_then_act", "plan")]
)
async def test_a_strategy_stands_behind_the_instructions(strategy: Any, word: str) -> None:
    script = Script(["yes", "yes"])
    config = AgentConfig(reasoning_strategy=strategy)
    await Agent(provider=script, instructions="Be brief.", config=config).run("hello")
    await Agent(provider=script, config=config).run("hello")
    first, second = (request.system for request in script.requests)
    assert first == f"Be brief.\n\n{second}"
    assert word in second
    with pytest.raises(WrongOption, match="reasoning_strategy should be 'react', 'cot' or 'plan_then_act'"):
        AgentConfig(reasoning_strategy="guess")
