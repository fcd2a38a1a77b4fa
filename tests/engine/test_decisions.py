"""Decisions overtake, and one confirmation does one thing, once."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from channels import Address, ButtonPress, Message, Parsed, Person, WebhookResponse
from gateway.testing import ChatDriver
from tests.engine.bots import Invoices
from tests.engine.rig import until


def press(
    chat: ChatDriver, event_id: str, *, person: str = "ana", place: str = "ana", token: str | None = None
) -> Parsed:
    shown = next(message for message in reversed(chat.messages) if message.tokens)
    event = ButtonPress(
        event_ids=(event_id,),
        address=Address(channel="test", account="bot", place=place, group=place.startswith("#")),
        person=Person(channel="test", account="bot", user_id=person),
        answer_to=event_id,
        token=token or shown.tokens["Confirm"],
    )
    return Parsed(events=(event,), response=WebhookResponse())


async def take(chat: ChatDriver, parsed: Parsed) -> None:
    await chat.engine.inbox.accept(chat.engine.context.channels["test"], parsed)


async def idle(chat: ChatDriver) -> None:
    await until(chat.engine.idle)


async def test_64_presses_at_once_have_one_effect(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await asyncio.gather(*(take(chat, press(chat, f"press {n}")) for n in range(64)))
        await idle(chat)
        assert invoices.deleted == ["INV-42"]
        assert len(chat.alerts) == 64
        assert chat.alerts.count("Confirmed.") == 1
        assert set(chat.alerts) <= {"Confirmed.", "This is already confirmed and running.", "This is already done."}


async def test_a_press_redelivered_is_one_press(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await asyncio.gather(*(take(chat, press(chat, "the same")) for _ in range(8)))
        await idle(chat)
        assert (invoices.deleted, chat.alerts) == (["INV-42"], ["Confirmed."])


async def test_a_press_during_a_long_turn_is_executed_at_once(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        saying = asyncio.create_task(chat.says("ana", "wait"))
        await invoices.model.waiting.wait()
        started = time.monotonic()
        await take(chat, press(chat, "now"))
        await until(lambda: chat.last.text == "Invoice INV-42 is deleted.")
        assert time.monotonic() - started < 20
        invoices.model.let_go.set()
        await saying
        assert invoices.deleted == ["INV-42"]
        assert chat.last.text == "You said: wait"


async def test_the_wrong_person_is_refused_privately(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42", group="team")
        await chat.presses("bob", "Confirm")
        assert (invoices.deleted, chat.alerts) == ([], ["This is not yours to answer."])
        assert chat.last.buttons == ["Confirm", "Cancel", "Change"]
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-42"]


async def test_a_token_of_another_chat_does_nothing(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await take(chat, press(chat, "forwarded", place="#team"))
        await idle(chat)
        assert (invoices.deleted, chat.alerts) == ([], ["This button belongs to another chat."])


@pytest.mark.parametrize("token", ["", "x", "00" + "A" * 22, "99" + "A" * 22, "é" * 24, "0" * 5000])
async def test_a_guessed_token_does_nothing(invoices: Invoices, token: str) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await take(chat, press(chat, "guess", token=token or "-"))
        await idle(chat)
        assert invoices.deleted == []
        assert chat.alerts == ["I no longer know this button. Ask again if you still want it."]


def code_of(chat: ChatDriver, number: int = -1) -> str:
    shown = [message for message in chat.messages if "Or reply" in message.text or "(" in message.text]
    found = re.findall(r"\*\*OK ([0-9A-Z]{4})\*\*", shown[number].text)
    return str(found[0])


async def test_a_code_picks_exactly_that_action(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "delete INV-2")
        await chat.says("ana", "yes")
        assert invoices.deleted == []
        assert "INV\\-1" in chat.last.text and "INV\\-2" in chat.last.text
        first = next(message for message in chat.messages if "INV\\-1" in message.text)
        code = re.findall(r"\*\*OK ([0-9A-Z]{4})\*\*", first.text)[0]
        await chat.says("ana", f"ok {code.lower()}")
        assert invoices.deleted == ["INV-1"]


async def test_a_reply_to_the_prompt_picks_its_action(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "hello")
        await chat.says("ana", "yes", reply_to=1)
        assert invoices.deleted == ["INV-1"]


async def test_a_yes_after_something_else_shows_the_prompt_again(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "hello")
        assert [message.text for message in chat.messages][1] == "You said: hello"
        assert "Nothing has been done yet" in chat.last.text
        await chat.says("ana", "yes")
        assert invoices.deleted == []
        assert "with the code" in chat.last.text
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]


async def test_a_yes_too_late_for_a_bare_word_asks_for_the_code(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.clock.advance(61)
        await chat.says("ana", "yes")
        assert invoices.deleted == []
        assert "with the code" in chat.last.text


@pytest.mark.parametrize("flag", ["forwarded", "via_bot", "transcribed"])
async def test_what_was_not_typed_decides_nothing(invoices: Invoices, flag: str) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        message = Message(
            event_ids=("yes",),
            address=Address(channel="test", account="bot", place="ana"),
            person=Person(channel="test", account="bot", user_id="ana"),
            text="yes",
        )
        untyped: dict[str, Any] = {flag: True}
        await take(chat, Parsed(events=(replace(message, **untyped),), response=WebhookResponse()))
        await idle(chat)
        assert invoices.deleted == []


async def test_several_calls_of_one_reply_are_asked_together(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1 INV-2")
        assert len(chat.messages) == 1
        assert len(chat.last.buttons) == 6
        label = next(label for label in chat.last.buttons if label.startswith("Confirm"))
        await chat.presses("ana", label)
        assert invoices.deleted == ["INV-1"]


async def test_joint_prompt_keeps_its_other_buttons_after_an_answer(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1 INV-2 INV-3")
        buttons = chat.last.buttons
        confirm = [label for label in buttons if label.startswith("Confirm")]
        cancel = [label for label in buttons if label.startswith("Cancel")]
        await chat.presses("ana", confirm[0])
        prompt = chat.messages[0]
        assert prompt.buttons == buttons, "a second tap must not land on another question"
        text = prompt.text.replace("\\", "")
        assert text.index("Confirmed by Ana") < text.index("Delete invoice “INV-2” for good?")
        assert "Delete invoice “INV-1” for good?" not in text

        await chat.presses("ana", confirm[0])
        assert invoices.deleted == ["INV-1"]
        assert "already done" in chat.alerts[-1]
        await chat.presses("ana", cancel[2])
        assert chat.messages[0].buttons == buttons
        await chat.presses("ana", confirm[1])
        assert invoices.deleted == ["INV-1", "INV-2"]
        prompt = chat.messages[0]
        assert prompt.buttons == []
        text = prompt.text.replace("\\", "")
        said = [text.index(words) for words in ("INV-1", "Confirmed by", "INV-2", "INV-3", "Not done, said Ana")]
        assert said == sorted(said)


async def test_what_is_asked_together_is_stopped_together(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1 INV-2")
        await chat.says("ana", "/stop")
        prompt = chat.messages[0]
        assert prompt.buttons == []
        assert prompt.text.count("Withdrawn. Nothing was done.") == 2


async def test_stop_withdraws_and_ends_the_turn(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        saying = asyncio.create_task(chat.says("ana", "wait"))
        await invoices.model.waiting.wait()
        await chat.says("ana", "/stop")
        await saying
        texts = [message.text for message in chat.messages]
        assert any(text.startswith("Stopped.") for text in texts)
        assert "You said: wait" not in texts
        await chat.says("ana", "yes")
        assert invoices.deleted == []


async def test_a_tool_that_fails_is_told_without_its_words(invoices: Invoices) -> None:
    invoices.error = RuntimeError("password=hunter2")
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.presses("ana", "Confirm")
        assert "it failed" in chat.last.text
        assert not any("hunter2" in message.text for message in chat.messages)
        await chat.says("ana", "yes")
        assert "it failed" in chat.last.text


async def test_an_equal_ask_joins_the_open_one(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "delete INV-1")
        first, second = (dict(message.tokens) for message in chat.messages[:2])
        assert first != second
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]
        assert all(not message.buttons for message in chat.messages)


async def test_a_no_in_a_group_of_somebody_else_changes_nothing(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1", group="team")
        requests = len(invoices.model.requests)
        await chat.says("bob", "no", group="team")
        await chat.says("ana", "yes", group="team")
        assert len(invoices.model.requests) == requests
        assert chat.last.buttons == ["Confirm", "Cancel", "Change"]
