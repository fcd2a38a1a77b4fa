"""Turns that tools plan: once, after what people wrote, and never read as an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, ToolContext, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools import ToolError
from tests.engine.rig import rig, until


@tool(read_only=True)
async def plan(text: str, ctx: ToolContext, after_seconds: float = 0.0) -> str:
    """Plan to go on."""
    ctx.follow_up(text, after_seconds=after_seconds)
    return "planned"


def planned(text: str = "check the order", **more: Any) -> ToolCall:
    return ToolCall("plan", {"text": text, **more})


def read(model: ScriptedProvider) -> str:
    """Return the last message that the model has read."""
    return model.requests[-1].messages[-1].content


@pytest.mark.ledger("PYG-26")
async def test_a_follow_up_is_a_turn_of_its_own() -> None:
    model = ScriptedProvider([planned(), "I will look.", "It has arrived."])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        await chat.says("ana", "watch my order")
        assert [message.text for message in chat.messages] == ["I will look.", "It has arrived."]
        assert read(model) == "You planned to go on now: check the order"
        assert model.requests[-1].messages[-1].role == "event"


async def test_a_later_follow_up_comes_when_it_is_due() -> None:
    model = ScriptedProvider([planned(after_seconds=3600), "I will look.", "It has arrived."])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        await chat.says("ana", "watch my order")
        await chat.clock.advance(3500)
        assert len(chat.messages) == 1
        await chat.clock.advance(200)
        assert chat.messages[-1].text == "It has arrived."


async def test_follow_ups_of_follow_ups_are_three_deep() -> None:
    steps: list[Any] = []
    for number in range(3):
        steps += [planned(f"again {number}"), f"turn {number}"]
    model = ScriptedProvider([*steps, planned("too deep"), "enough"])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        await chat.says("ana", "go on")
        assert [message.text for message in chat.messages] == ["turn 0", "turn 1", "turn 2", "enough"]
        assert "at most 3 deep" in read(model)


async def test_a_follow_up_comes_after_what_the_person_wrote_meanwhile() -> None:
    hold = asyncio.Event()
    model = ScriptedProvider([planned(), hold, "I will look.", "both"])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        first = asyncio.create_task(chat.says("ana", "watch my order"))
        await until(lambda: len(model.requests) >= 2)
        second = asyncio.create_task(chat.says("ana", "and my parcel"))
        while (await chat.engine.context.store.stats()).waiting < 2:
            await asyncio.sleep(0.001)
        hold.set()
        await asyncio.gather(first, second)
        said = [message.content for message in model.requests[-1].messages]
        assert "and my parcel" in said and "You planned to go on now: check the order" in said
        assert [message.text for message in chat.messages] == ["I will look.", "both"]


@pytest.mark.parametrize("text", ["yes", "OK", "confirm"])
async def test_a_follow_up_never_confirms(text: str) -> None:
    ran: list[str] = []

    @tool(confirm="Delete it?")
    async def delete() -> str:
        """Delete."""
        ran.append("gone")
        return "gone"

    model = ScriptedProvider([(planned(text), ToolCall("delete", {})), "waiting"])
    async with ChatDriver(Agent([plan, delete]), provider=model) as chat:
        await chat.says("ana", "delete it")
        assert ran == [] and "Delete it?" in "".join(message.text for message in chat.messages)
        await chat.presses("ana", "Confirm")
        assert ran == ["gone"]


async def test_it_is_the_turn_of_the_person_whose_turn_planned_it() -> None:
    people: list[str] = []

    @tool(read_only=True)
    async def note(ctx: ToolContext) -> str:
        """Note."""
        people.append(ctx.person)
        ctx.follow_up("more") if ctx.depth == 0 else None
        return "noted"

    model = ScriptedProvider([ToolCall("note", {}), "one", ToolCall("note", {}), "two"])
    async with ChatDriver(Agent([note]), provider=model) as chat:
        await chat.says("ana", "hello", group="team")
        assert len(people) == 2 and len(set(people)) == 1 and people[0].endswith(":ana")
        assert [message.place for message in chat.messages] == ["#team", "#team"]


async def test_a_take_over_plans_it_once(tmp_path: Path) -> None:
    """The first attempt at the turn ends after the tool, before its commit."""
    from gateway.providers import ProviderError

    down = ProviderError("openai", "503", retryable=False)
    model = ScriptedProvider([planned(), down, "I will look.", "It has arrived."])
    async with rig(ChannelAgent(Agent([plan], provider=model)), tmp_path) as chat:
        await chat.hears("ana", "watch my order")
        await chat.later(60)
        assert chat.platform.texts()[-2:] == ["I will look.", "It has arrived."]
        assert len(model.requests) == 4


@pytest.mark.parametrize(
    ("text", "after_seconds"), [("", 0.0), (" ", 0.0), ("x" * 4001, 0.0), ("x", -1.0), ("x", 1e9), ("x", float("nan"))]
)
def test_wrong_values_are_refused(text: str, after_seconds: float) -> None:
    context = ToolContext(person="app:-:ana", plan=lambda planned: None)
    with pytest.raises(ValueError, match=r"1 to 4000 characters|0 to 30 days"):
        context.follow_up(text, after_seconds=after_seconds)


async def test_without_a_chat_it_says_so() -> None:
    with pytest.raises(ToolError, match="needs the turn of a chat"):
        ToolContext(person="app:-:ana").follow_up("x")
