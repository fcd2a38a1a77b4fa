"""The way of a message and of an action can be followed in the log: one line a station, without anybody's words."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, FallbackProvider, ToolContext, tool
from gateway.observe.event_log import EventLog
from gateway.observe.events import CacheHit, LlmEnd
from gateway.providers import ProviderError, Response, Usage
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


async def test_a_switch_to_the_next_model_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    down = ScriptedProvider([ProviderError("scripted", CANARY, retryable=True)])
    chain = FallbackProvider([down, ScriptedProvider(["Here I am."])])
    async with ChatDriver(Agent(provider=chain)) as chat:
        await chat.says("ana", "hello")
    assert chat.last.text == "Here I am."
    said = line(caplog, "next model asked")
    assert (said.levelname, said.failed_provider, said.next_provider) == ("WARNING", "scripted", "scripted")
    assert said.event == line(caplog, "turn begun").event
    assert CANARY not in everything(caplog)


async def test_log_follows_a_turn_and_its_calls(caplog: pytest.LogCaptureFixture) -> None:
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
    assert not hasattr(answered, "cost"), "this model costs nothing"
    assert CANARY not in everything(caplog)


@pytest.mark.ledger("CFG-11")
async def test_log_has_tokens_costs_tools_and_hits_of_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst.events")
    log = EventLog()
    said: dict[str, Any] = {"run_id": "r", "provider": "openai", "duration_ms": 7.4}
    usage = Usage(prompt_tokens=100, completion_tokens=20, cached_prompt_tokens=60)
    response = Response(content=CANARY, model="m")
    log.read(LlmEnd(response=response, usage=replace(usage, cost_usd=0.0012345678), **said))
    log.read(LlmEnd(response=response, usage=usage, **said))
    log.read(CacheHit(run_id="r", model="m", response=response))
    known, unknown, hit = caplog.records
    assert vars(known).items() >= {"model": "m", "total_tokens": 120, "cached_prompt_tokens": 60}.items()
    assert vars(known)["cost_usd"] == 0.001235
    assert (vars(unknown)["cost"], "cost_usd" in vars(unknown)) == ("unknown", False)
    assert (hit.getMessage(), vars(hit)["model"]) == ("cache answered", "m")
    assert CANARY not in everything(caplog)


@pytest.mark.parametrize(("name", "state"), [("feather", "done"), ("stone", "failed")])
async def test_log_follows_an_action_without_its_words(caplog: pytest.LogCaptureFixture, name: str, state: str) -> None:
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


async def test_exception_text_reaches_neither_chat_nor_model_nor_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def preview(name: str) -> str:
        raise KeyError(CANARY)

    @tool(confirm=preview)
    async def shred(name: str) -> str:
        """Shred something."""
        return name

    caplog.set_level(logging.DEBUG, "askfirst")
    provider = ScriptedProvider(
        [
            ToolCall("look", {"where": "nowhere"}),
            ToolCall("shred", {"name": "paper"}),
            "Both failed.",
            ToolCall("delete", {"name": "stone"}),
            "So did that.",
        ]
    )
    async with ChatDriver(ChannelAgent(Agent([look, shred, delete]), language="en"), provider=provider) as chat:
        await chat.says("ana", "look, then shred")
        await chat.says("ana", "delete the stone")
        await chat.presses("ana", "Confirm")
        await chat.says("ana", "why?")
        shown = [message.text for message in chat.messages]
    asked = [message.content for request in provider.requests for message in request.messages]
    assert any("Error executing tool 'look': ValueError (test_trail.py:" in text for text in asked)
    assert any("Error executing tool 'shred': KeyError (test_trail.py:" in text for text in asked)
    assert any("the preview of shred failed: KeyError (test_trail.py:" in each.getMessage() for each in caplog.records)
    assert CANARY not in f"{asked} {shown} {everything(caplog)}"


async def test_a_turn_that_fails_says_where_and_for_which_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    bot = ChannelAgent(Agent([]))

    @bot.command("report")
    async def report(ctx: ToolContext, text: str) -> str:
        raise ValueError(CANARY)

    async with ChatDriver(bot, provider=ScriptedProvider([])) as chat:
        await chat.says("ana", "/report")
    (failed,) = [each for each in caplog.records if each.getMessage().startswith("a turn of ")]
    assert re.search(r" failed: ValueError \(test_trail\.py:\d+ report\)$", failed.getMessage())
    assert vars(failed)["event"] == vars(line(caplog, "turn begun"))["event"]
    assert CANARY not in caplog.text


async def test_a_tool_that_there_is_not_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    provider = ScriptedProvider([ToolCall(f"tell {CANARY}", {}), "Sorry."])
    async with ChatDriver(ChannelAgent(Agent([look])), provider=provider) as chat:
        await chat.says("ana", "hello")
    assert vars(line(caplog, "tool failed"))["tool"] == "(unknown)"
    assert CANARY not in everything(caplog)


@pytest.mark.parametrize("way", ["button", "code", "word", "/stop"])
async def test_log_says_how_a_person_decided(caplog: pytest.LogCaptureFixture, way: str) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    script = [ToolCall("delete", {"name": "feather"})]
    async with ChatDriver(ChannelAgent(Agent([delete]), language="en"), provider=ScriptedProvider(script)) as chat:
        await chat.says("ana", "delete it")
        code = chat.last.text.partition("**OK ")[2][:4]
        match way:
            case "button":
                await chat.presses("ana", "Confirm")
            case "code":
                await chat.says("ana", f"OK {code}")
            case "word":
                await chat.says("ana", "yes")
            case _:
                await chat.says("ana", "/stop")
    decided = [record for record in caplog.records if str(getattr(record, "how", "")).startswith("decided")]
    assert [record.how for record in decided] == [f"decided by {way}"]  # type: ignore[attr-defined]
    assert decided[0].actions == [line(caplog, "action asked").action]  # type: ignore[attr-defined]
