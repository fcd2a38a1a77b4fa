"""One turn takes joined messages in order: one turn at a time a conversation, conversations in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import Agent, ChannelAgent, ToolContext
from gateway.store.types import Incoming
from gateway.testing import ChatDriver, ScriptedProvider
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, message, rig, until, user_lines


@pytest.fixture
def script() -> ScriptedProvider:
    return ScriptedProvider([f"answer {number}" for number in range(1, 10)])


@pytest.fixture
async def chat(script: ScriptedProvider, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path) as chat:
        yield chat


async def test_messages_of_one_person_that_wait_are_one_turn(chat: Rig, script: ScriptedProvider) -> None:
    for text in ("one", "two", "three"):
        await chat.says("ana", text)
    await chat.turns()
    assert user_lines(script) == ["one", "two", "three"]
    assert chat.platform.texts() == ["answer 1"]


async def test_messages_are_not_joined_across_another_person(chat: Rig, script: ScriptedProvider) -> None:
    for person, text in (("ana", "one"), ("ana", "two"), ("bob", "three"), ("ana", "four")):
        await chat.says(person, text, place="#team")
    outcomes = [await chat.worker.turn() for _ in range(3)]
    assert all(outcomes) and len(script.requests) == 3
    assert user_lines(script) == ["one", "two", "three", "four"]
    speakers = [each.speaker for each in script.requests[-1].messages if each.role == "user"]
    assert speakers == ["Ana", "Ana", "Bob", "Ana"]


async def test_a_turn_has_the_person_who_wrote_it(tmp_path: Path) -> None:
    people: list[str] = []

    def instructions(ctx: ToolContext) -> str:
        people.append(ctx.person)
        return ""

    bot = ChannelAgent(Agent(provider=ScriptedProvider(["a", "b"]), instructions=instructions))
    async with rig(bot, tmp_path) as chat:
        await chat.says("ana", "one", place="#team")
        await chat.hears("bob", "two", place="#team")
    assert people == ["test:bot:ana", "test:bot:bob"]


@pytest.mark.parametrize("word", ["yes", "no", "sim"])
async def test_they_are_not_joined_across_a_yes_or_a_no(chat: Rig, script: ScriptedProvider, word: str) -> None:
    for text in ("one", word, "two", "three"):
        await chat.says("ana", text)
    await chat.turns()
    new = [request.messages[-1].content for request in script.requests]
    assert (new, user_lines(script)) == (["one", word, "three"], ["one", word, "two", "three"])


async def test_they_are_not_joined_across_a_command(chat: Rig, script: ScriptedProvider) -> None:
    for text in ("one", "/pending", "two"):
        await chat.says("ana", text)
    await chat.turns()
    assert chat.platform.texts() == ["answer 1", "Nothing is waiting for your answer.", "answer 2"]


@pytest.mark.ledger("PYG-05", "PYG-07")
async def test_what_comes_during_a_turn_makes_the_next_one() -> None:
    hold = asyncio.Event()
    script = ScriptedProvider([hold, "first", "second"])
    async with ChatDriver(ChannelAgent(Agent()), provider=script) as chat:
        first = asyncio.create_task(chat.says("ana", "one"))
        await until(lambda: script.requests)
        more = [asyncio.create_task(chat.says("ana", text)) for text in ("two", "three")]
        while (await chat.engine.context.store.stats()).waiting < 3:
            await asyncio.sleep(0)
        assert len(script.requests) == 1
        hold.set()
        await asyncio.gather(first, *more)
        assert [each.text for each in chat.messages] == ["first", "second"]
        assert user_lines(script) == ["one", "two", "three"]


async def test_a_slow_conversation_delays_nobody() -> None:
    invoices = Invoices()
    async with ChatDriver(invoices.bot()) as chat:
        slow = asyncio.create_task(chat.says("ana", "wait"))
        await invoices.model.waiting.wait()
        others = [asyncio.create_task(chat.says(f"person {number}", "hello")) for number in range(20)]
        await until(lambda: len(chat.messages) >= 20)
        assert not slow.done()
        invoices.model.let_go.set()
        await asyncio.gather(slow, *others)
        assert len(chat.messages) == 21


# ── edits ──


async def test_an_edit_replaces_the_text_of_an_unread_message(chat: Rig, script: ScriptedProvider) -> None:
    await chat.says("ana", "send INV-1", message_id="m1")
    await chat.edits("ana", "m1", "send INV-2")
    await chat.turns()
    assert user_lines(script) == ["send INV-2"]
    assert len(script.requests) == 1


async def test_edit_counts_when_it_waits_behind_the_next_turns_message(chat: Rig, script: ScriptedProvider) -> None:
    await chat.says("ana", "send INV-1", message_id="m1", place="#team")
    await chat.says("bob", "hello", message_id="m2", place="#team")
    await chat.edits("ana", "m1", "send INV-2", place="#team")
    await chat.worker.turn()
    assert user_lines(script) == ["send INV-2"]
    await chat.turns()
    assert user_lines(script) == ["send INV-2", "hello"]


async def test_the_edit_of_a_read_message_is_history(chat: Rig, script: ScriptedProvider) -> None:
    await chat.hears("ana", "send INV-1", message_id="m1")
    await chat.edits("ana", "m1", "send INV-2")
    assert await chat.ready() == 0
    await chat.hears("ana", "well?")
    assert user_lines(script) == ["send INV-1", "well?"]
    noted = [each.content for each in script.requests[-1].messages if each.role == "event"]
    assert noted == ["The person edited an earlier message: send INV-2"]


@pytest.mark.parametrize(("before", "after"), [("yes", "list invoices"), ("list invoices", "yes"), ("yes", "no")])
async def test_an_edit_to_or_of_an_answer_never_decides(tmp_path: Path, before: str, after: str) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(), tmp_path) as chat:
        await chat.hears("ana", "delete INV-1")
        await chat.says("ana", before, message_id="m1")
        await chat.edits("ana", "m1", after)
        await chat.turns()
        assert invoices.deleted == []
        assert (await chat.store.stats()).ready == 0
        assert "Nothing has been done yet" in chat.platform.texts()[-1] or "with the code" in chat.platform.texts()[-1]


async def test_yes_taken_back_by_a_later_edit_does_not_count(tmp_path: Path) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(), tmp_path) as chat:
        await chat.hears("ana", "delete INV-1")
        await chat.says("ana", "yes", message_id="m1")
        await chat.says("ana", "hello", message_id="m2")
        await chat.edits("ana", "m1", "not yet, wait")
        await chat.turns()
        assert invoices.deleted == []
        assert any("with the code" in text for text in chat.platform.texts())


async def test_yes_after_other_words_of_its_batch_does_not_count(tmp_path: Path) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(), tmp_path) as chat:
        await chat.hears("ana", "delete INV-1")
        await chat.take(message("ana", "by the way"), message("ana", "yes"))
        await chat.turns()
        assert invoices.deleted == []
        assert "with the code" in chat.platform.texts()[-1]


async def test_an_event_of_another_release_is_put_aside_and_told(chat: Rig, script: ScriptedProvider) -> None:
    conversation = chat.worker.context.conversation(here("ana"))
    wink = Incoming(conversation=conversation, event_ids=("wink",), body={"kind": "Wink"})
    await chat.store.accept([wink])
    await chat.hears("ana", "two")
    assert user_lines(script) == ["two"]
    assert len(await chat.store.dead_letters()) == 1
    assert chat.platform.texts()[0].startswith("Something went wrong on my side. Reference: ")
