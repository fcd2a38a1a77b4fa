"""Conversations as their operator reads them, on both stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, AgentConfig, ChannelAgent, EntityMemory, KnowledgeMemory, tool
from gateway.channel_agent import NotRunning
from gateway.conversations import Conversations, UnknownConversation
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall

NAME = "agent/test:bot:"


@tool(confirm="Delete invoice {invoice_id}?")
async def delete_invoice(invoice_id: str) -> str:
    """Delete an invoice."""
    return f"Deleted {invoice_id}."


def reader() -> EntityMemory:
    found = json.dumps({"entities": [{"name": "Alice", "type": "person"}]})
    return EntityMemory(provider=ScriptedProvider([found] * 9))


@pytest.fixture
async def chat() -> AsyncIterator[ChatDriver]:
    """Ana talks alone and in a group, and Ben alone."""
    noted = ToolCall("remember", {"content": "likes tea", "persistent": True})
    model = ScriptedProvider(
        [
            [noted, ToolCall("delete_invoice", {"invoice_id": "INV-7"})],
            "Sunny in Porto.",
            "Hello Ben, it rains.",
            "Hello all.",
        ]
    )
    config = AgentConfig(entity_memory=reader(), knowledge_memory=KnowledgeMemory())
    async with ChatDriver(Agent([delete_invoice], config=config), provider=model) as chat:
        await chat.says("ana", "I like tea, and delete INV-7")
        await chat.presses("ana", "Confirm")
        await chat.clock.advance(60)
        await chat.says("ana", "How is the weather in PORTO?")
        await chat.clock.advance(60)
        await chat.says("ben", "and in porto today?")
        await chat.says("ana", "hello", group="sales")
        yield chat


def conversations(chat: ChatDriver) -> Conversations:
    return chat.engine.runtime.conversations


async def test_names_are_listed_by_person_and_limit(chat: ChatDriver) -> None:
    found = conversations(chat)
    assert await found.list() == [f"{NAME}#sales", f"{NAME}ana", f"{NAME}ben"]
    assert await found.list(limit=2) == [f"{NAME}#sales", f"{NAME}ana"]
    assert await found.list(person="test:bot:ana") == [f"{NAME}#sales", f"{NAME}ana"]
    assert await found.list(person="test:bot:an") == []
    with pytest.raises(ValueError, match="1 or more"):
        await found.list(limit=0)


@pytest.mark.ledger("MEM-06")
async def test_messages_are_read_with_calls_and_results(chat: ChatDriver) -> None:
    messages = await conversations(chat).read(f"{NAME}ana")
    roles = [message.role for message in messages]
    assert roles[0] == "user" and "tool" in roles and "assistant" in roles
    assert messages[0].content == "I like tea, and delete INV-7"
    assert [call.name for message in messages for call in message.tool_calls] == ["remember", "delete_invoice"]
    assert [each.content for each in await conversations(chat).read(f"{NAME}ana", last=1)] == [messages[-1].content]


@pytest.mark.parametrize("name", ["agent/test:bot:nobody", "test:bot:ana", ""])
async def test_unknown_conversation_is_named(chat: ChatDriver, name: str) -> None:
    with pytest.raises(UnknownConversation, match="there is no conversation") as raised:
        await conversations(chat).read(name)
    assert raised.value.name == name


@pytest.mark.ledger("MEM-11")
async def test_search_finds_the_newest_first_in_any_case(chat: ChatDriver) -> None:
    found = await conversations(chat).search("porto")
    assert [(each.conversation, each.message.content) for each in found] == [
        (f"{NAME}ben", "and in porto today?"),
        (f"{NAME}ana", "Sunny in Porto."),
        (f"{NAME}ana", "How is the weather in PORTO?"),
    ]
    assert found[0].at > found[1].at
    assert len(await conversations(chat).search("porto", limit=1)) == 1
    assert len(await conversations(chat).search("porto", person="test:bot:ben")) == 1
    assert await conversations(chat).search("Lisbon") == []
    with pytest.raises(ValueError, match="is empty"):
        await conversations(chat).search("  ")


async def test_export_of_a_conversation_is_whole(chat: ChatDriver) -> None:
    found: Any = await conversations(chat).export(f"{NAME}ana")
    assert found["conversation"] == f"{NAME}ana"
    assert list(found["people"]) == ["test:bot:ana"]
    assert found["messages"][0]["content"] == "I like tea, and delete INV-7"
    assert [(each["kind"], each["state"]) for each in found["actions"]] == [("delete_invoice", "done")]
    assert [each["name"] for each in found["memories"]["entities"]["value"]] == ["Alice"]
    json.dumps(found, allow_nan=False)


@pytest.mark.ledger("MEM-11")
async def test_export_of_a_person_has_no_words_of_others(chat: ChatDriver) -> None:
    found: Any = await conversations(chat).export("test:bot:ana")
    assert (found["person"], list(found["conversations"])) == ("test:bot:ana", [f"{NAME}ana"])
    assert found["groups"] == [f"{NAME}#sales"]
    assert [fact["content"] for fact in found["facts"]] == ["likes tea"]
    told = json.dumps(found)
    assert "How is the weather" in told
    assert "and in porto today?" not in told
    assert "Hello all." not in told
    with pytest.raises(UnknownConversation):
        await conversations(chat).export("test:bot:nobody")


async def test_secret_fields_of_actions_are_not_exported(chat: ChatDriver) -> None:
    found: Any = await conversations(chat).export(f"{NAME}ana")
    assert not {"address", "ballots", "audit", "seal", "tokens"} & set(found["actions"][0])


@pytest.mark.ledger("MEM-10")
async def test_name_like_a_path_is_a_name_and_touches_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    strange = ["../../ana", "/etc/passwd", "a\0b", "..", "a/../b"]
    async with ChatDriver(Agent(), provider=ScriptedProvider(["1", "2", "3", "4", "5"])) as chat:
        for number, name in enumerate(strange, start=1):
            await chat.says(name, f"message {number}")
        names = await conversations(chat).list()
        assert len(names) == len(strange)
        said = [[each.content for each in await conversations(chat).read(name)] for name in names]
        assert sorted(said) == [[f"message {number}", str(number)] for number in range(1, 6)]
        for name in ("", "..", "agent/../agent/test:bot:ana"):
            with pytest.raises(UnknownConversation):
                await conversations(chat).read(name)
    assert list(tmp_path.iterdir()) == []


async def test_bot_that_does_not_run_has_no_conversations() -> None:
    with pytest.raises(NotRunning):
        _ = ChannelAgent(Agent()).conversations
