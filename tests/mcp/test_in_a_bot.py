"""MCP servers among the tools of a bot: asking, drifting, dying, and opened and closed with the bot."""

from __future__ import annotations

import asyncio
import os

import pytest

from gateway import Agent, ChannelAgent, Json, ToolPolicy, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.agent.scripted import Script, call
from tests.mcp.conftest import Servers, called


def driven(agent: Agent, *script: str | ToolCall) -> tuple[ChatDriver, ScriptedProvider]:
    provider = ScriptedProvider(script)
    return ChatDriver(ChannelAgent(agent), provider=provider), provider


def heard(provider: ScriptedProvider) -> str:
    return provider.requests[-1].messages[-1].content


async def test_tool_asks_and_the_model_goes_on_with_its_result(servers: Servers) -> None:
    chat, provider = driven(Agent([servers.busy(prefix="s_")]), ToolCall("s_pay", {"amount": "3"}), "Three are paid.")
    async with chat:
        await chat.says("ana", "pay 3")
        assert "“s pay”" in chat.last.text and "3" in chat.last.text and servers.done == []
        await chat.presses("ana", "Confirm")
        assert servers.done == ["pay 3"]
        assert chat.last.text == "Three are paid."
        assert not any('"paid"' in message.text for message in chat.messages)  # a stranger's words
    assert '"paid": 3' in heard(provider)
    assert provider.requests[0].tools[1].name == "s_pay"


async def test_tool_that_the_policy_allows_runs_at_once(servers: Servers) -> None:
    server = servers.busy(policy=ToolPolicy(allow=["look"], deny=["die"]))
    script = (ToolCall("look", {"place": "home"}), ToolCall("die", {}), "It is flat.")
    chat, provider = driven(Agent([server]), *script)
    async with chat:
        await chat.says("ana", "look")
        assert chat.last.text == "It is flat." and not chat.last.buttons
    assert [request.messages[-1].content for request in provider.requests[1:]] == [
        "home is flat",
        "Tool 'die' is not allowed here (deny list: 'die'). Do not try it again.",
    ]
    assert servers.done == []


async def test_policy_of_the_agent_holds_too(servers: Servers) -> None:
    server = servers.busy(policy=ToolPolicy(allow=["*"]))
    script = Script([call("look", place="home"), "No."])
    await Agent([server], provider=script, policy=ToolPolicy(deny=["look"], allow=["*"])).run("look")
    assert "is not allowed here (deny list: 'look')" in script.requests[-1].messages[-1].content


async def test_own_tool_of_the_same_name_wins(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    @tool(read_only=True)
    async def look(place: str) -> str:
        """Look."""
        return f"own look at {place}"

    agent = Agent([look, servers.busy()], provider=(script := Script([call("look", place="home"), "Ok"])))
    await agent.run("look")
    assert script.requests[-1].messages[-1].content == "own look at home"
    assert "the tool 'look' of MCP server" in caplog.text and "Give the source a prefix=" in caplog.text
    await agent.drain()


async def test_tool_changed_without_a_word_is_not_run_after_a_yes(servers: Servers) -> None:
    chat, _ = driven(Agent([servers.rude("drifts")]), ToolCall("act", {}), "It has changed.")
    async with chat:
        await chat.says("ana", "act")
        await chat.presses("ana", "Confirm")
        assert "nothing was done" in " ".join(message.text for message in chat.messages)


async def test_tool_that_changed_in_a_call_drifts_its_open_action(servers: Servers) -> None:
    server = servers.busy()
    chat, _ = driven(Agent([server]), ToolCall("look", {"place": "home"}), "It has changed.")
    async with chat:
        await chat.says("ana", "look")
        await called(server, "change")
        await chat.presses("ana", "Confirm")
        assert "nothing was done" in " ".join(message.text for message in chat.messages)


async def test_server_dead_at_the_yes_is_reported_as_not_done(servers: Servers) -> None:
    chat, provider = driven(Agent([servers.rude("mortal")]), ToolCall("act", {}), "It is not there.")
    async with chat:
        await chat.says("ana", "act")
        await chat.presses("ana", "Confirm")
        assert "could not be done. Nothing has happened" in " ".join(message.text for message in chat.messages)
        assert chat.last.text == "It is not there."
    assert "error: NothingDone: MCP server" in heard(provider)


async def test_server_that_dies_in_a_confirmed_call_is_told_as_unknown(servers: Servers) -> None:
    chat, provider = driven(Agent([servers.busy()]), ToolCall("die", {}), "I do not know.")
    async with chat:
        await chat.says("ana", "die")
        await chat.presses("ana", "Confirm")
        assert "may or may not" in " ".join(message.text for message in chat.messages)
    assert servers.done == ["die"] and "it may or may not have happened" in heard(provider)


async def test_input_that_the_server_wants_is_asked_and_given(servers: Servers) -> None:
    seat: dict[str, Json] = {"row": 7, "window": True}
    script = (ToolCall("book", {}), "Which seat?", ToolCall("book", {"askfirst_input": seat}), "You have seat 7.")
    chat, provider = driven(Agent([servers.busy()]), *script)
    async with chat:
        await chat.says("ana", "book")
        await chat.presses("ana", "Confirm")
        assert chat.last.text == "Which seat?" and servers.done == []
        assert "confirmed by the person, but it failed" in heard(provider)
        assert "Which seat? (fields: row, window)" in heard(provider)
        await chat.says("ana", "row 7, at the window")
        assert "row" in chat.last.text and "7" in chat.last.text and servers.done == []  # the answers are shown
        await chat.presses("ana", "Confirm")
        assert servers.done == ["book 7 True"] and chat.last.text == "You have seat 7."


async def test_answers_in_a_persons_name_are_asked_despite_a_policy(servers: Servers) -> None:
    server = servers.busy(policy=ToolPolicy(allow=["*"]))
    answers: dict[str, Json] = {"askfirst_input": {"row": 7, "window": True}}
    chat, _ = driven(Agent([server]), ToolCall("book", {}), ToolCall("book", answers), "You have seat 7.")
    async with chat:
        await chat.says("ana", "book")
        assert chat.last.buttons and servers.done == []
        await chat.presses("ana", "Confirm")
        assert servers.done == ["book 7 True"]


async def test_server_lives_as_long_as_its_bot(servers: Servers) -> None:
    server = servers.rude("plain")
    chat, _ = driven(Agent([server]), "Hello.")
    async with chat:
        assert [each.name for each in server.listed()] == ["act"]  # before the first turn
        await chat.says("ana", "hi")
        assert not (servers.state / "ended").exists()
    assert (servers.state / "ended").exists()


async def test_run_without_a_chat_opens_a_server_and_drain_closes_it(servers: Servers) -> None:
    policy = ToolPolicy(allow=["act"])
    agent = Agent([servers.rude("plain", policy=policy)], provider=Script([call("act"), "Done."] * 2))
    for _ in range(2):
        assert (await agent.run("act")).content == "Done."
        assert not (servers.state / "ended").exists()
        await agent.drain()
        (servers.state / "ended").unlink()


async def test_runs_of_scripts_open_and_close_the_server_each_time(servers: Servers) -> None:
    policy = ToolPolicy(allow=["act"])
    agent = Agent([servers.rude("plain", policy=policy)], provider=Script([call("act"), "Done."] * 2))
    for _ in range(2):
        assert (await asyncio.to_thread(agent.run_sync, "act")).content == "Done."
        (servers.state / "ended").unlink()


async def test_bot_without_its_server_answers(servers: Servers) -> None:
    chat, _ = driven(Agent([servers.rude("exit")]), "Hello.")
    async with chat:
        await chat.says("ana", "hi")
        assert chat.last.text == "Hello."


async def test_process_that_ignores_its_end_is_killed(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.mcp.transports._GRACE_SECONDS", 0.2)
    server = servers.rude("stubborn")
    await server.refresh()
    await server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((servers.state / "pid").read_text()), 0)
