"""An approval expires, and one press asks again after an end: the same call, a new preview, no model."""

from __future__ import annotations

from typing import Any

import pytest

from channels import ButtonPress, Person
from gateway.testing import ChatDriver
from gateway.tools import Confirm, Preview
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here
from tests.engine.test_tampered_records import texts


async def test_an_approval_of_sixteen_minutes_is_not_launched(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    chat.store.offset_seconds += 16 * 60
    await chat.work()
    assert invoices.deleted == []
    assert "could not be started in time" in texts(chat)
    assert [(action.state, action.reason) for action in await chat.actions()] == [("closed", "expired")]


async def test_an_approval_that_nobody_takes_up_is_told_by_its_timer(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    await chat.advance(15 * 60 + 6)
    assert [(action.state, action.reason) for action in await chat.actions()] == [("closed", "expired")]
    await chat.work()
    assert texts(chat).count("could not be started in time, so nothing was done: ") == 1
    assert invoices.deleted == []


async def test_prompt_and_model_say_that_a_yes_came_to_nothing(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    await chat.advance(15 * 60 + 6)
    await chat.work()
    await chat.handles("ana", "what now?")
    edited = [str(part.arguments["text"]) for _, part in chat.platform.sent if part.call == "edit"]
    assert "confirmed, but could not be started in time" in edited[-1] and "Expired" not in edited[-1]
    heard = "\n".join(each.content for each in invoices.model.requests[-1].messages if each.role == "event")
    assert "confirmed by the person, but it could not be started in time: it was NOT done." in heard
    assert "not answered" not in heard


async def test_an_approval_of_fourteen_minutes_is_launched(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    chat.store.offset_seconds += 14 * 60
    await chat.work()
    assert invoices.deleted == ["INV-1"]


@pytest.mark.parametrize("again", [1, 3])
async def test_one_press_asks_an_expired_question_again(invoices: Invoices, again: int) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        before = chat.last.text
        await chat.clock.advance(16 * 60)
        assert "expired" in chat.last.text
        asked = len(invoices.model.requests)
        for _ in range(again):
            await chat.presses("ana", "Ask again")
        assert len(invoices.model.requests) == asked
        assert chat.last.buttons == ["Confirm", "Cancel", "Change"]
        assert chat.last.text.split("OK")[0] == before.split("OK")[0] and chat.last.text != before
        assert sum("Delete invoice" in message.text and "Confirm" in message.buttons for message in chat.messages) == 1
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]


async def test_nobody_else_has_it_asked_again(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1", group="team")
        await chat.clock.advance(16 * 60)
        shown = len(chat.messages)
        token = next(m.tokens["Ask again"] for m in reversed(chat.messages) if "Ask again" in m.tokens)
        eva = Person(channel="test", account="bot", user_id="eva")
        place = chat.messages[-1].place
        press = ButtonPress(event_ids=("e",), address=here(place), person=eva, token=token, answer_to="e")
        await chat._take(press)
        assert len(chat.messages) == shown
        await chat.presses("ana", "Ask again")
        assert len(chat.messages) == shown + 1


async def test_what_has_drifted_is_asked_again_with_a_new_preview(invoices: Invoices) -> None:
    count = [3]

    async def look(invoice_id: str) -> Preview:
        return Preview(text=f"Delete {count[0]} lines of {invoice_id}?")

    async with ChatDriver(invoices.bot(confirm=look)) as chat:
        await chat.says("ana", "delete INV-1")
        count[0] = 300
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == []
        assert "no longer as it was shown" in chat.last.text
        await chat.presses("ana", "Ask again")
        assert "Delete 300 lines" in chat.last.text
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]


async def test_what_can_no_longer_be_previewed_is_not_asked_again(invoices: Invoices) -> None:
    gone: list[bool] = []

    async def look(invoice_id: str) -> str:
        if gone:
            raise ValueError("no such invoice")
        return f"Delete {invoice_id}?"

    async with ChatDriver(invoices.bot(confirm=look)) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.clock.advance(16 * 60)
        gone.append(True)
        await chat.presses("ana", "Ask again")
        assert "cannot be asked again" in chat.last.text


async def test_equal_ask_with_another_preview_replaces_the_first(invoices: Invoices) -> None:
    count = [3]

    async def look(invoice_id: str) -> Preview:
        return Preview(text=f"Delete {count[0]} lines of {invoice_id}?")

    async with ChatDriver(invoices.bot(confirm=look)) as chat:
        await chat.says("ana", "delete INV-1")
        count[0] = 300
        await chat.says("ana", "delete INV-1")
        first, second = chat.messages[0], chat.messages[1]
        assert "new question takes its place" in first.text and first.buttons == []
        assert "Delete 300 lines" in second.text
        await chat.says("ana", "yes")
        assert invoices.deleted == ["INV-1"]


async def test_preview_that_fails_at_the_launch_is_tried_again(invoices: Invoices) -> None:
    down: list[bool] = []

    async def look(invoice_id: str) -> Preview:
        if down and down.pop():
            raise ConnectionError("secret")
        return Preview(text=f"Delete {invoice_id}?")

    async with ChatDriver(invoices.bot(confirm=look)) as chat:
        await chat.says("ana", "delete INV-1")
        down.append(True)
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == []
        assert "no longer" not in chat.last.text
        await chat.clock.advance(6)
        assert invoices.deleted == ["INV-1"]


@pytest.mark.parametrize(("one", "other", "runs"), [(("etag", 3), ["etag", 3], True), (1, True, False)], ids=str)
async def test_preconditions_are_compared_as_json(invoices: Invoices, one: Any, other: Any, runs: bool) -> None:
    found = iter([one, other])

    async def look(invoice_id: str) -> Preview:
        return Preview(text=f"Delete {invoice_id}?", precondition=next(found))

    async with ChatDriver(invoices.bot(confirm=Confirm(look))) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == (["INV-1"] if runs else [])
