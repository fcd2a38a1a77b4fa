"""/export and /forget of a person: asked first, in their own chat, and only with the code of the answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from channels import OpenMedia
from gateway import Agent, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall

CODE = re.compile(r"/(?:export|forget) (\d{4})$")


@tool(confirm="Delete {what}?")
async def delete(what: str) -> str:
    """Delete something."""
    return f"{what} is deleted"


@pytest.fixture
async def chat() -> AsyncIterator[ChatDriver]:
    model = ScriptedProvider(["Hello.", ToolCall("delete", {"what": "the quokka"}), "Again?", "Hello again."])
    async with ChatDriver(Agent([delete]), provider=model) as chat:
        await chat.says("ana", "my quokka-secret")
        yield chat


def code(chat: ChatDriver) -> str:
    found = CODE.search(chat.last.text)
    assert found is not None, chat.last.text
    return found[1]


async def names(chat: ChatDriver) -> list[str]:
    """What the store has of Ana."""
    store = chat.engine.context.store
    kept = [key.name for key, _ in await store.scan("")] + [key.name for key in await store.logs("")]
    return [name for name in kept if "test:bot:ana" in name]


async def until_forgotten(chat: ChatDriver) -> None:
    for _ in range(20):
        await chat.clock.advance(5)


@pytest.mark.ledger("MEM-11")
async def test_forgetting_takes_a_second_word(chat: ChatDriver) -> None:
    await chat.says("ana", "/forget")
    assert "cannot be undone" in chat.last.text
    await until_forgotten(chat)
    assert await names(chat)
    await chat.says("ana", f"/forget {code(chat)}")
    assert chat.last.text.startswith("All that is kept about you is being removed.")
    await until_forgotten(chat)
    assert await names(chat) == []
    assert (await chat.engine.context.store.stats()).parked == 0


@pytest.mark.parametrize("said", ["/forget 99999", "/forget yes", "/forget", "/forget me please"])
async def test_another_word_asks_again(chat: ChatDriver, said: str) -> None:
    await chat.says("ana", "/forget")
    await chat.says("ana", said)
    assert "cannot be undone" in chat.last.text
    await until_forgotten(chat)
    assert await names(chat)


async def test_a_code_is_of_one_person_command_and_time(chat: ChatDriver) -> None:
    await chat.says("ana", "/forget")
    first = code(chat)
    for person, command in (("ben", "forget"), ("ana", "export")):
        await chat.says(person, f"/{command} {first}")
        assert code(chat) != first
    await chat.clock.advance(1_300)
    await chat.says("ana", f"/forget {first}")
    assert code(chat) != first
    await until_forgotten(chat)
    assert await names(chat)


async def test_an_open_question_is_withdrawn_with_it(chat: ChatDriver) -> None:
    await chat.says("ana", "delete it")
    await chat.says("ana", "/forget")
    await chat.says("ana", f"/forget {code(chat)}")
    await until_forgotten(chat)
    assert await names(chat) == []
    await chat.presses("ana", "Confirm")
    assert chat.alerts[-1] == "I no longer know this button. Ask again if you still want it."


async def test_a_group_points_to_the_own_chat(chat: ChatDriver) -> None:
    for command in ("forget", "export"):
        await chat.says("ana", f"/{command}", group="team")
        assert chat.last.text == "Please write this to me in a chat of our own: it is about you alone."
        await chat.says("ana", f"/{command}")
        await chat.says("ana", f"/{command} {code(chat)}", group="team")
        assert chat.last.text == "Please write this to me in a chat of our own: it is about you alone."
    await until_forgotten(chat)
    assert await names(chat)


@pytest.mark.ledger("MEM-11")
async def test_an_export_is_a_file_after_a_second_word(chat: ChatDriver) -> None:
    await chat.says("ben", "my koala-secret")
    await chat.says("ana", "/export")
    assert chat.last.artifacts == []
    await chat.says("ana", f"/export {code(chat)}")
    [file] = [media for message in chat.messages for media in message.artifacts]
    assert isinstance(file, OpenMedia)
    content = await asyncio.to_thread(file.path.read_text)
    found: Any = json.loads(content)
    assert (file.filename, found["person"]) == ("export.json", "test:bot:ana")
    assert "quokka-secret" in content and "koala" not in content


async def test_after_it_a_person_begins_anew(chat: ChatDriver) -> None:
    await chat.says("ana", "/forget")
    await chat.says("ana", f"/forget {code(chat)}")
    await until_forgotten(chat)
    await chat.says("ana", "hello")
    model = chat.bot.agent.provider
    assert isinstance(model, ScriptedProvider)
    assert [message.content for message in model.requests[-1].messages] == ["hello"]
