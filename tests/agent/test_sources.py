"""Sources of tools: their lists are taken between turns, names stay unique, and a changed tool drifts what it asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import gateway.json_schema  # noqa: F401 - its library reads files when it is loaded, which no event loop waits for
from gateway import Agent, ChannelAgent, Tool, ToolParameter, ToolPolicy
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools import ToolSource, tool
from tests.agent.scripted import Script, call


def wipe(*, source: str = "shelf", description: str = "Wipe a disk.", **options: Any) -> Tool:
    async def function(disk: str) -> str:
        return f"{source} wiped {disk}"

    return Tool.from_schema("wipe", description, [ToolParameter("disk", str, "Which")], function, **options)


class Shelf:
    """A source whose next list the test sets."""

    def __init__(self, *tools: Tool, label: str = "shelf") -> None:
        self.label, self.next, self.closed = label, tools, 0
        self._listed: tuple[Tool, ...] = ()

    def listed(self) -> Sequence[Tool]:
        return self._listed

    async def refresh(self) -> None:
        if self.next is not self._listed:
            self._listed = self.next

    async def close(self) -> None:
        self.closed += 1


async def test_list_is_taken_between_turns() -> None:
    shelf = Shelf()
    assert isinstance(shelf, ToolSource)
    agent = Agent(
        [shelf], provider=(script := Script([call("wipe", disk="a"), "No tool", call("wipe", disk="a"), "Ok"]))
    )
    assert agent.tools == {}
    first = await agent.run("wipe a")
    shelf.next = (wipe(),)
    assert agent.tools == {}  # only a turn takes a new list
    second = await agent.run("wipe a")
    assert list(agent.tools) == list(agent.reach) == ["wipe"]
    assert [each.content for each in (first, second)] == ["No tool", "Ok"]
    assert [[spec.name for spec in request.tools] for request in script.requests] == [[], [], ["wipe"], ["wipe"]]
    assert [request.messages[-1].content for request in script.requests[1::2]] == [
        "Unknown tool 'wipe'. Available tools: none",
        "shelf wiped a",
    ]
    await agent.drain()
    assert shelf.closed == 1


@tool(name="wipe")
async def own(disk: str) -> str:
    """Wipe a disk."""
    return f"own wiped {disk}"


async def test_own_tool_wins_over_a_listed_one_and_the_log_says_it(caplog: pytest.LogCaptureFixture) -> None:
    late = Shelf(wipe(source="late"), label="late")
    agent = Agent([own, Shelf(wipe(), label="first"), late], provider=Script([call("wipe", disk="a"), "Ok"] * 2))
    await agent.run("wipe a")
    await agent.run("wipe a")
    assert agent.tools["wipe"] is own
    assert [record.getMessage() for record in caplog.records] == [
        f"the tool 'wipe' of {label} is left out: another tool has this name, and it stays. Give the source a prefix="
        for label in ("first", "late")
    ]


async def test_tool_behind_another_agent_wins_over_a_listed_one(caplog: pytest.LogCaptureFixture) -> None:
    inner = Agent([own], provider=Script([]))
    agent = Agent([inner.as_tool("cleaner", "Clean"), Shelf(wipe())], provider=Script(["Ok"]))
    await agent.run("hi")
    assert list(agent.tools) == ["cleaner"] and agent.reach["wipe"].tool is own
    assert "'wipe' of shelf is left out" in caplog.text


async def test_source_of_an_inner_agent_is_reached_and_closed() -> None:
    shelf = Shelf(wipe())
    inner = Agent([shelf], provider=Script([]), policy=(policy := ToolPolicy(allow=["wipe"])))
    agent = Agent([inner.as_tool("cleaner", "Clean")], provider=Script(["Ok"]))
    await agent.run("hi")
    assert agent.reach["wipe"] == (shelf.next[0], policy) and agent.sources == (shelf,)
    await agent.drain()
    assert shelf.closed == 1


async def test_changed_tool_drifts_its_open_action() -> None:
    shelf = Shelf(wipe(confirm=True, version="1"))
    agent = Agent([shelf])
    script = ScriptedProvider([ToolCall("wipe", {"disk": "a"}), "All well."])
    async with ChatDriver(ChannelAgent(agent), provider=script) as chat:
        await chat.says("ana", "wipe a")
        shelf.next = (wipe(confirm=True, version="2"),)
        await chat.says("ben", "hello")
        await chat.presses("ana", "Confirm")
        assert "nothing was done" in chat.last.text
    assert shelf.closed == 1


async def test_confirmed_action_of_a_source_runs() -> None:
    script = ScriptedProvider([ToolCall("wipe", {"disk": "a"})])
    async with ChatDriver(Agent([Shelf(wipe(confirm="Wipe {disk}?"))]), provider=script) as chat:
        await chat.says("ana", "wipe a")
        await chat.presses("ana", "Confirm")
        assert chat.last.text == "shelf wiped a"
