"""Approvers without any way to answer: found before the gateway serves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from channels import MissingSetting
from gateway import Agent, Approvers, ChannelAgent, Confirm, Gateway, Settings, Tool, tool
from gateway.access import AllowList
from gateway.access.approvers import check_approvers, check_channels


def paying(*people: str, need: int = 1, requester: bool = False) -> Tool:
    @tool(confirm=Confirm("Pay?", approvers=Approvers(people=people, need=need, requester=requester)))
    async def pay() -> None:
        """Pay."""

    return pay


def check(tool: Tool, entries: Sequence[str] = ("telegram:1:7",), channels: Sequence[str] = ("telegram",)) -> None:
    check_approvers([tool], channels, AllowList(entries))


@pytest.mark.parametrize(
    ("person", "why"),
    [
        ("telgram:1:7", "there is no channel telgram, only telegram, sms"),
        ("slack:T1:U7", "slack is not on: set SLACK_BOT_TOKEN"),
        ("webchat:local:x", "webchat is not on"),
        ("telegram:1:8", "ASKFIRST_ALLOW does not let them in: add telegram:1:8"),
    ],
)
def test_tool_with_an_unreachable_approver_is_refused(person: str, why: str) -> None:
    with pytest.raises(MissingSetting) as refused:
        check(paying(person))
    assert f"- tool pay: its approver {person} can never answer: {why}" in str(refused.value)


@pytest.mark.parametrize(
    ("people", "rule", "left"),
    [
        (["telegram:1:7", "telegram:1:8"], {"need": 2}, 1),
        (["telegram:1:8", "telegram:1:9"], {"need": 2, "requester": True}, 1),
        (["telegram:1:8"], {}, 0),
    ],
)
def test_too_few_reachable_approvers_are_refused(people: list[str], rule: dict[str, int], left: int) -> None:
    with pytest.raises(MissingSetting, match=rf"must say yes, and only {left} can"):
        check(paying(*people, **rule))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("people", "rule"),
    [(["telegram:1:7", "telegram:1:8"], {}), (["telegram:1:8"], {"requester": True})],
)
def test_enough_reachable_approvers_beside_others_are_a_warning(
    people: list[str], rule: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "askfirst"):
        check(paying(*people, **rule))
    assert [record.getMessage().partition(": ASKFIRST")[0] for record in caplog.records] == [
        "tool pay: its approver telegram:1:8 can never answer"
    ]


@pytest.mark.parametrize(
    ("people", "entries"),
    [(["telegram:1:7"], ["telegram:1:7"]), (["telegram:1:7"], ["telegram:*"]), (["telegram:1:7"], ["*"]),
     (["app:-:boss"], [])],
)  # fmt: skip
def test_reachable_approvers_log_no_warning(
    people: list[str], entries: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "askfirst"):
        check(paying(*people), entries)
    assert caplog.records == []


def test_gateway_with_unreachable_approvers_does_not_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bot = ChannelAgent(Agent([paying("telegram:1:7")], provider="demo"))
    settings = Settings(store=f"sqlite:///{tmp_path}/bot.db", allow=["*"])
    with pytest.raises(MissingSetting, match="telegram is not on"):
        Gateway(bot, settings)
    Gateway(bot, settings, chat=True, console=True)
    assert "telegram is not on" in caplog.text, "where a bot is only tried"


def test_approver_on_a_channel_without_the_tool_is_refused() -> None:
    @tool(confirm=Confirm("Pay?", approvers=Approvers(people=["telegram:1:7"])), channels=["slack"])
    async def pay() -> None:
        """Pay."""

    with pytest.raises(MissingSetting, match="its channels= have no telegram"):
        check(pay)


def test_unknown_channel_is_refused_and_known_ones_are_listed() -> None:
    @tool(channels=["slack", "slakc"])
    async def pay() -> None:
        """Pay."""

    with pytest.raises(MissingSetting) as refused:
        check_channels([pay])
    assert "- tool pay: slakc" in str(refused.value)
    assert "only app, slack, sms, telegram, webchat, whatsapp" in str(refused.value)


def test_unknown_channel_of_a_tool_stops_the_gateway(tmp_path: Path) -> None:
    @tool(channels=["slakc"])
    async def pay() -> None:
        """Pay."""

    with pytest.raises(MissingSetting, match="slakc"):
        Gateway(ChannelAgent(Agent([pay], provider="demo")), Settings(store=f"sqlite:///{tmp_path / 'a.db'}"))
