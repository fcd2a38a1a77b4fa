"""The way of a message and of an action can be followed in the log: one line a station, without anybody's words."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall

CANARY = "canary-3f9c"


@tool(read_only=True)
async def look(where: str) -> str:
    """Look."""
    if where == "nowhere":
        raise ValueError(CANARY)
    return CANARY


@tool(confirm="Delete {name}?")
async def delete(name: str) -> str:
    """Delete something."""
    if name == "stone":
        raise ValueError(CANARY)
    return CANARY


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    names = ("askfirst.events", "askfirst.actions")
    return [record.getMessage() for record in caplog.records if record.name in names]


def line(caplog: pytest.LogCaptureFixture, message: str) -> Any:
    return next(record for record in caplog.records if record.getMessage() == message)


def everything(caplog: pytest.LogCaptureFixture) -> str:
    return str([record.__dict__ for record in caplog.records if record.name.startswith("askfirst")])


async def test_a_turn_and_its_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    script: list[Any] = [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "nowhere"}), "Done."]
    async with ChatDriver(ChannelAgent(Agent([look]), language="en"), provider=ScriptedProvider(script)) as chat:
        await chat.says("ana", CANARY)
    assert lines(caplog) == [
        "accepted",
        "turn begun",
        "model answered",
        "tool ran",
        "model answered",
        "tool failed",
        "model answered",
        "committed",
        "delivered",
    ]
    ran, failed, answered = (line(caplog, each) for each in ("tool ran", "tool failed", "model answered"))
    assert (ran.tool, ran.event, type(ran.milliseconds)) == ("look", line(caplog, "accepted").event, int)
    assert (failed.levelno, failed.tool) == (logging.WARNING, "look")
    assert failed.what.startswith("ValueError (test_trail.py:")
    assert answered.total_tokens == 0
    assert CANARY not in everything(caplog)


@pytest.mark.parametrize(("name", "state"), [("feather", "done"), ("stone", "failed")])
async def test_an_action(caplog: pytest.LogCaptureFixture, name: str, state: str) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    script = [ToolCall("delete", {"name": name})]
    async with ChatDriver(ChannelAgent(Agent([delete]), language="en"), provider=ScriptedProvider(script)) as chat:
        await chat.says("ana", CANARY)
        code = chat.last.text.partition("**OK ")[2][:4]
        await chat.presses("ana", "Confirm")
    told = [each for each in lines(caplog) if each.startswith(("tool ", "action ", "effect "))]
    assert told[:5] == ["tool asks", "action asked", "action shown", "action decided", "action launched"]
    assert told[-2:] == ["effect ended", "action finished"]
    asks, decided, ended = (line(caplog, each) for each in ("tool asks", "action decided", "effect ended"))
    assert (asks.tool, asks.action, decided.person) == ("delete", ended.action, "test:bot:ana")
    assert (ended.tool, ended.state, type(ended.milliseconds)) == ("delete", state, int)
    assert CANARY not in everything(caplog)
    assert code not in everything(caplog), "who reads the log must not be able to confirm"
    if state == "failed":
        assert any("(delete): ValueError (test_trail.py:" in each for each in told)
