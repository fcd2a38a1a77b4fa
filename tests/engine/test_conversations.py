"""Conversations as their operator reads them, on both stores."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from channels import Button, Media, OpenMedia
from gateway import (
    Agent,
    AgentConfig,
    Approvers,
    ChannelAgent,
    Confirm,
    EntityMemory,
    KnowledgeMemory,
    Reply,
    ToolContext,
    tool,
)
from gateway.channel_agent import NotRunning
from gateway.config.options import WrongOption
from gateway.privacy.conversations import Conversations, UnknownConversation
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.engine.bots import Invoices

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
    assert len(await conversations(chat).search("e")) == 5
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


CODE = re.compile(r"/(?:export|forget) (\d{4})$")


@tool(confirm="Delete {what}?")
async def delete(what: str) -> str:
    """Delete something."""
    return f"{what} is deleted"


@pytest.fixture
async def own() -> AsyncIterator[ChatDriver]:
    model = ScriptedProvider(["Hello.", ToolCall("delete", {"what": "the quokka"}), "Again?", "Hello again."])
    async with ChatDriver(Agent([delete]), provider=model) as chat:
        await chat.says("ana", "my quokka-secret")
        yield chat


def code(own: ChatDriver) -> str:
    found = CODE.search(own.last.text)
    assert found is not None, own.last.text
    return found[1]


async def names(own: ChatDriver) -> list[str]:
    """Return the names of all stored keys of Ana."""
    store = own.engine.context.store
    kept = [key.name for key, _ in await store.scan("")] + [key.name for key in await store.logs("")]
    return [name for name in kept if "test:bot:ana" in name]


async def until_forgotten(own: ChatDriver) -> None:
    for _ in range(20):
        await own.clock.advance(5)


@pytest.mark.ledger("MEM-11")
async def test_forget_needs_a_second_message_with_the_code(own: ChatDriver) -> None:
    await own.says("ana", "/forget")
    assert "cannot be undone" in own.last.text
    await until_forgotten(own)
    assert await names(own)
    await own.says("ana", f"/forget {code(own)}")
    assert own.last.text.startswith("All that is kept about you is being removed.")
    await until_forgotten(own)
    assert await names(own) == []
    assert (await own.engine.context.store.stats()).parked == 0


@pytest.mark.parametrize("said", ["/forget 99999", "/forget yes", "/forget", "/forget me please"])
async def test_forget_with_a_wrong_code_asks_again(own: ChatDriver, said: str) -> None:
    await own.says("ana", "/forget")
    await own.says("ana", said)
    assert "cannot be undone" in own.last.text
    await until_forgotten(own)
    assert await names(own)


async def test_a_code_is_of_one_person_command_and_time(own: ChatDriver) -> None:
    await own.says("ana", "/forget")
    first = code(own)
    for person, command in (("ben", "forget"), ("ana", "export")):
        await own.says(person, f"/{command} {first}")
        assert code(own) != first
    await own.clock.advance(1_300)
    await own.says("ana", f"/forget {first}")
    assert code(own) != first
    await until_forgotten(own)
    assert await names(own)


async def test_forget_withdraws_an_open_question(own: ChatDriver) -> None:
    await own.says("ana", "delete it")
    await own.says("ana", "/forget")
    await own.says("ana", f"/forget {code(own)}")
    await until_forgotten(own)
    assert await names(own) == []
    await own.presses("ana", "Confirm")
    assert own.alerts[-1] == "I no longer know this button. Ask again if you still want it."


async def test_a_group_points_to_the_own_chat(own: ChatDriver) -> None:
    for command in ("forget", "export"):
        await own.says("ana", f"/{command}", group="team")
        assert own.last.text == "Please write this to me in a chat of our own: it is about you alone."
        await own.says("ana", f"/{command}")
        await own.says("ana", f"/{command} {code(own)}", group="team")
        assert own.last.text == "Please write this to me in a chat of our own: it is about you alone."
    await until_forgotten(own)
    assert await names(own)


@pytest.mark.ledger("MEM-11")
async def test_export_is_a_file_after_a_second_message_with_the_code(own: ChatDriver) -> None:
    await own.says("ben", "my koala-secret")
    await own.says("ana", "/export")
    assert own.last.artifacts == []
    await own.says("ana", f"/export {code(own)}")
    [file] = [media for message in own.messages for media in message.artifacts]
    assert isinstance(file, OpenMedia)
    content = await asyncio.to_thread(file.path.read_text)
    found: Any = json.loads(content)
    assert (file.filename, found["person"]) == ("export.json", "test:bot:ana")
    assert "quokka-secret" in content and "koala" not in content


async def test_person_begins_anew_after_forget(own: ChatDriver) -> None:
    await own.says("ana", "/forget")
    await own.says("ana", f"/forget {code(own)}")
    await until_forgotten(own)
    await own.says("ana", "hello")
    model = own.bot.agent.provider
    assert isinstance(model, ScriptedProvider)
    assert [message.content for message in model.requests[-1].messages] == ["hello"]


AT = re.compile(r"[A-Z][a-z]{2} \d{1,2}, \d{1,2}:\d\d UTC: ")


async def decided(bot: ChannelAgent, invoice: str, intent: Any, person: str = "ana", **place: str) -> None:
    (action,) = (await bot.ask_channel(person, f"delete {invoice}", **place)).pending  # type: ignore[arg-type]
    await bot.decide(f"app:-:{person}", intent, action_id=action.pending_action_id)


async def receipts(bot: ChannelAgent, person: str = "ana", **place: str) -> list[str]:
    told = await bot.ask_channel(person, "/receipts", **place)  # type: ignore[arg-type]
    return told.content.replace("\N{NO-BREAK SPACE}", " ").replace("\\", "").splitlines()


async def test_outcomes_are_listed_the_last_one_first(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        assert await receipts(bot) == ["Nothing has been decided here yet."]
        await decided(bot, "INV-1", "confirm")
        await decided(bot, "INV-2", "cancel")
        invoices.error = RuntimeError("the secret of the tool")
        await decided(bot, "INV-3", "confirm")
        await bot.ask_channel("ana", "delete INV-4")
        head, blank, *lines = await receipts(bot)
    assert (head, blank) == ("The last outcomes:", "")
    assert all(AT.search(line) for line in lines)
    assert [re.sub(r"\d{1,2}:\d\d UTC\.", "14:02.", AT.sub("", line)) for line in lines] == [
        "- **Delete invoice “INV-3” for good** ❌ Confirmed by `app:-:ana`, failed 14:02.",
        "- **Delete invoice “INV-2” for good** 🚫 Not done, said `app:-:ana`.",
        "- **Delete invoice “INV-1” for good** ✅ Confirmed by `app:-:ana`, done 14:02.",
    ]


async def test_ten_outcomes_are_listed(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        for number in range(12):
            await decided(bot, f"INV-{number}", "confirm")
        lines = await receipts(bot)
    assert ["INV-11”" in lines[2], "INV-2”" in lines[-1], len(lines)] == [True, True, 12]


async def test_outcomes_of_other_people_are_not_listed(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        await decided(bot, "INV-1", "confirm", conversation_id="shared")
        await decided(bot, "INV-2", "confirm", person="bob", conversation_id="shared")
        lines = await receipts(bot, "bob", conversation_id="shared")
        assert ["INV-2" in line for line in lines[2:]] == [True]
        assert await receipts(bot, "eva", conversation_id="shared") == ["Nothing has been decided here yet."]


async def test_outcomes_are_told_in_the_readers_language(invoices: Invoices) -> None:
    async with invoices.bot(language="de") as bot:
        await decided(bot, "INV-1", "cancel")
        lines = await receipts(bot)
    assert lines[0] == "Die letzten Ergebnisse:"


@tool(confirm=Confirm("Pay {amount}?", approvers=Approvers(people=["test:bot:ben"])))
async def pay(amount: int) -> str:
    """Pay."""
    return f"Paid {amount}."


DELETE = ToolCall("delete_invoice", {"invoice_id": "INV-7"})


def bot() -> ChannelAgent:
    return ChannelAgent(Agent([delete_invoice, pay]))


async def listed(chat: ChatDriver, person: str, group: str | None = None) -> str:
    await chat.says(person, "/pending", group=group)
    return chat.last.text.replace("\\", "")


async def test_question_in_a_group_is_listed_in_the_own_chat() -> None:
    async with ChatDriver(bot(), provider=ScriptedProvider([DELETE])) as chat:
        await chat.says("ana", "delete INV-7", group="sales")
        assert "Delete invoice “INV-7”? (test:bot:#sales)" in await listed(chat, "ana")
        assert "INV-7" not in await listed(chat, "ben")  # it waits for ana
        assert "INV-7" not in await listed(chat, "ana", group="other")  # others read it there
        await chat.presses("ana", "Confirm")
        assert "INV-7" not in await listed(chat, "ana")


async def test_approver_of_a_group_reads_the_question_in_the_own_chat() -> None:
    async with ChatDriver(bot(), provider=ScriptedProvider([ToolCall("pay", {"amount": 5})])) as chat:
        await chat.says("ana", "pay 5", group="sales")
        assert "Pay 5? (test:bot:#sales)" in await listed(chat, "ben")
        assert "Pay 5? (test:bot:#sales)" in await listed(chat, "ana")


async def test_question_of_the_own_chat_has_its_code_and_is_told_once() -> None:
    async with ChatDriver(bot(), provider=ScriptedProvider([DELETE])) as chat:
        await chat.says("ana", "delete INV-7")
        told = await listed(chat, "ana")
        assert told.count("INV-7") == 1
        assert "test:bot" not in told


@pytest.mark.parametrize("many", [25])
async def test_only_the_last_questions_are_kept(many: int) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": f"N-{n}"}) for n in range(many)])
    async with ChatDriver(bot(), provider=script) as chat:
        for number in range(many):
            await chat.clock.advance(10)
            await chat.says("ana", "delete it", group=f"g{number}")
        told = await listed(chat, "ana")
        assert (told.count("N-"), "“N-24”" in told, "“N-4”" in told) == (20, True, False)


WITH_BUTTONS = Reply(text="Which one?", buttons=(Button(label="This one", token="t"),))
SAYS = "there are no handlers for them yet"


def asking() -> ChannelAgent:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])))

    @bot.command("which")
    async def which(ctx: ToolContext, text: str) -> Reply:
        """Ask."""
        return WITH_BUTTONS

    return bot


async def test_command_reply_with_own_buttons_is_an_error() -> None:
    async with asking() as bot:
        with pytest.raises(WrongOption, match=SAYS):
            await bot.ask_channel("ana", "/which")


async def test_own_buttons_on_a_platform_are_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async with ChatDriver(asking()) as chat:
        with caplog.at_level(logging.ERROR, "askfirst.turns"):
            await chat.says("ana", "/which")
            assert chat.messages == []
    assert SAYS in caplog.text
    assert "This one" not in caplog.text, "a label may be a person's words"


async def test_notify_refuses_own_buttons() -> None:
    async with ChatDriver(asking()) as chat:
        with pytest.raises(WrongOption, match=SAYS):
            await chat.bot.notify("test:bot:ana", WITH_BUTTONS)
        with pytest.raises(WrongOption, match=SAYS):
            await chat.bot.notify("test:bot:ana", WITH_BUTTONS, after_seconds=60)


def test_a_greeting_is_a_text() -> None:
    with pytest.raises(WrongOption, match="greeting should be a valid string"):
        ChannelAgent(Agent(), greeting=cast("Any", WITH_BUTTONS))


async def test_lists_are_taken_without_a_warning() -> None:
    media = Media(sha256="0" * 64, mime_type="text/plain", filename="a.txt", size=1)
    lists: dict[str, Any] = {"buttons": [], "media": [media]}
    assert Reply(text="Hello", **lists).media == (media,)
    async with ChatDriver(asking()) as chat:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await chat.bot.notify("test:bot:ana", Reply(text="Hello", buttons=cast("Any", [])), after_seconds=60)
            await chat.clock.advance(61)
        assert [message.text for message in chat.messages] == ["Hello"]
