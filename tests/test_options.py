"""Wrong options of a bot's parts: each is refused with the allowed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from channels import AskfirstError
from gateway import Agent, AgentConfig, ChannelAgent, Confirm, Gateway, Settings, tool
from gateway.config.options import WrongOption


def look(where: str) -> str:
    """Look."""
    return where


def agent(**options: Any) -> Agent:
    return Agent([look], **options)


def bot(**options: Any) -> ChannelAgent:
    return ChannelAgent(agent(), **options)


def gateway(**options: Any) -> Gateway:
    return Gateway(agent(), **options)


def served(**options: Any) -> Any:
    return Gateway(agent(), Settings(allow="*", store="sqlite:///:memory:")).asgi_app(**options)


def made(**options: Any) -> Any:
    return tool(**options)(look)


@pytest.mark.parametrize(
    ("make", "options", "says"),
    [
        (AgentConfig, {"temprature": 1}, "AgentConfig: temprature is no option: did you mean temperature?"),
        (
            AgentConfig,
            {"temperature": 9, "max_tokens": 0},
            "AgentConfig: temperature should be less than or equal to 2, not 9; "
            "max_tokens should be greater than or equal to 1, not 0",
        ),
        (AgentConfig, {"stop_condition": "no"}, "AgentConfig: stop_condition should be callable, not 'no'"),
        (made, {"confrim": True}, "Tool: confrim is no option: did you mean confirm?"),
        (made, {"lock": 3}, "Tool: lock should be a valid string, not 3"),
        (made, {"read_only": "yes"}, "Tool: read_only should be a valid boolean, not 'yes'"),
        (made, {"timeout_seconds": "10"}, "Tool: timeout_seconds should be a valid number, not '10'"),
        (Confirm, {"tll_seconds": 3}, "Confirm: tll_seconds is no option: did you mean ttl_seconds?"),
        (
            agent,
            {"provider": 3},
            "Agent: provider should be a valid string or an instance of Provider or an instance of Completes, not 3",
        ),
        (agent, {"instructions": 3}, "Agent: instructions should be a valid string or callable, not 3"),
        (
            agent,
            {"policy": {"secret": "s3"}},
            "Agent: policy should be an instance of ToolPolicy, not a value of type dict",
        ),
        (bot, {"answer_window": 3}, "ChannelAgent: answer_window is no option: did you mean answer_window_seconds?"),
        (bot, {"zzz": 3}, "ChannelAgent: zzz is no option; there are agent, answer_window_seconds, collect_seconds,"),
        (bot, {"on_unrelated": "kep"}, "ChannelAgent: on_unrelated should be 'keep' or 'drop', not 'kep'"),
        (bot, {"answer_window_seconds": 0}, "ChannelAgent: answer_window_seconds should be greater than 0, not 0"),
        (bot, {"collect_seconds": float("inf")}, "ChannelAgent: collect_seconds should be a finite number, not inf"),
        (bot, {"language": 3}, "ChannelAgent: language should be a valid string, not 3"),
        (gateway, {"role": "wroker"}, "Gateway: role should be 'all', 'web' or 'worker', not 'wroker'"),
        (gateway, {"way": "poling"}, "Gateway: way should be 'auto', 'webhook' or 'polling', not 'poling'"),
        (gateway, {"chatt": True}, "Gateway: chatt is no option: did you mean chat?"),
        (served, {"prefix": "bot"}, "Gateway.asgi_app: prefix should begin with /, not 'bot'"),
        (
            bot,
            {"store": "postgres://ana:s3cret@db", "language": "german"},
            "ChannelAgent: store should be sqlite:///path/to/file.db, redis://host:6379 or a Store, not a 'postgres' "
            "URL; language should be a language tag such as 'en' or 'pt-BR', not 'german'",
        ),
    ],
)
def test_a_wrong_option_is_named_with_the_allowed_values(make: Callable[..., Any], options: Any, says: str) -> None:
    with pytest.raises(WrongOption) as caught:
        make(**options)
    assert str(caught.value).startswith(says)
    assert list(caught.value.issues) == list(options)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Agent(look), "Agent: tools should be a list, not a value of type function"),  # type: ignore[arg-type]
        (
            lambda: Agent([3]),  # type: ignore[list-item]
            "Agent: tools[0] should be an instance of Tool or callable or an instance of ToolSource, not 3",
        ),
        (lambda: Agent("look"), "Agent: tools is not allowed"),  # type: ignore[arg-type]
        (lambda: ChannelAgent([look]), "ChannelAgent: agent should be an instance of Agent, not a value of type list"),  # type: ignore[arg-type]
        (lambda: ChannelAgent(), "ChannelAgent: agent is missing"),  # type: ignore[call-arg]
        (lambda: ChannelAgent(agent(), "sqlite://"), "ChannelAgent: store has to be given by its name"),  # type: ignore[call-arg]
        (lambda: tool(3), "Tool: function should be callable, not 3"),  # type: ignore[call-overload]
    ],
)
def test_option_without_a_name_is_refused_too(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(WrongOption) as caught:
        make()
    assert str(caught.value).startswith(says)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(WrongOption) as caught:
        bot(groups="x" * 1000)
    assert len(str(caught.value)) < 150


def test_wrong_option_is_an_askfirst_error_and_a_value_error() -> None:
    assert issubclass(WrongOption, AskfirstError) and issubclass(WrongOption, ValueError)
