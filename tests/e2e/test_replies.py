"""People see the bot's answers on Telegram: text, files, commands, typing, edits, topics."""

from __future__ import annotations

import asyncio
import io
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pypdf import PdfReader

from tests.e2e.house import House, delete, open_house
from tests.e2e.test_confirming import DONE
from tests.fakes.openai import Call, Say
from tests.fakes.telegram import Message


def page_of(message: Message) -> str:
    assert message.file is not None
    return PdfReader(io.BytesIO(message.file.content)).pages[0].extract_text()


async def test_a_file_of_a_tool_comes_as_a_document_after_the_text(house: House) -> None:
    answer = await house.asks("INV-7 as PDF", Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here it is:")
    document = await house.next(house.ana, 1)
    assert answer.text == "Here it is:"
    assert document.file is not None
    assert (document.file.filename, document.file.mime_type) == ("INV-7.pdf", "application/pdf")
    assert "Invoice INV-7" in page_of(document)
    assert [call.method for call in house.telegram.calls if call.method.startswith("send")][-1] == "sendDocument"


@pytest.mark.ledger("PEND-67")
async def test_a_file_of_a_confirmed_tool_comes_after_its_receipt(house: House) -> None:
    prompt = await house.asks("archive INV-7", Call("archive_invoice", {"invoice_id": "INV-7"}))
    await house.presses(prompt)
    document = await house.next(house.ana, 2)
    assert house.texts()[1] == "Invoice INV-7 is archived."
    assert "Invoice INV-7" in page_of(document)
    await house.until(lambda: not prompt.buttons)


async def test_typing_is_shown_while_a_turn_runs_and_not_after(house: House) -> None:
    hold = asyncio.Event()
    house.model.script([Say("Done thinking.", hold=hold)])
    await house.says("think")
    await house.until(lambda: house.telegram.called("sendChatAction"))
    call = house.telegram.called("sendChatAction")[0]
    assert (str(call.arguments["chat_id"]), call.arguments["action"]) == (str(house.ana.id), "typing")
    assert house.texts() == []
    hold.set()
    await house.until(lambda: house.texts() == ["Done thinking."])


async def test_built_in_commands_answer_without_the_model(house: House) -> None:
    hello = await house.asks("/start")
    assert hello.text.startswith("Hello! Tell me what you need.")
    listed = await house.asks("/help")
    assert [line for line in listed.text.splitlines() if line.startswith("/")] == [
        "/start – Say hello",
        "/help – What you can do here",
        "/new – Begin a new conversation",
        "/stop – Stop what I am doing",
        "/pending – See what is waiting for your answer",
        "/receipts – See what became of your last requests",
        "/usage – See what you have used",
        "/export – Get what is kept about you",
        "/forget – Have what is kept about you removed",
        "/total – What is still open",
    ]
    assert (await house.asks("/pending")).text == "Nothing is waiting for your answer."
    assert (await house.asks("/stop")).text == "There is nothing to stop."
    assert house.model.requests == []


async def test_a_topic_is_a_conversation_of_its_own(house: House) -> None:
    team = house.telegram.group("Team")
    books, travel = house.telegram.topic(team), house.telegram.topic(team)
    await house.asks("my book is Emma", "Noted.", to=team, by=house.ana, thread=books)
    prompt = await house.asks("delete INV-42", *delete("INV-42"), to=team, by=house.ana, thread=travel)
    assert [message.thread for message in house.messages(team)] == [books, travel]
    assert "Emma" not in str(house.model.requests[-1]["messages"])
    await house.presses(prompt)
    await house.until(lambda: len(house.messages(team)) == 3)
    assert house.messages(team)[-1].thread == travel
    await house.until(lambda: not prompt.buttons)


async def test_a_file_of_a_person_is_named_to_the_model(house: House) -> None:
    photo = house.telegram.upload("document", b"%PDF-1.4 x", "receipt.pdf", "application/pdf")
    await house.asks("what is this?", "A receipt.", file=photo)
    assert "receipt.pdf" in str(house.model.requests[-1]["messages"][-1]["content"])


# ── long polling ──


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "askfirst.platforms"]


def offsets(house: House) -> list[int]:
    return [int(call.arguments["offset"]) for call in house.telegram.called("getUpdates")]


async def test_the_story_without_a_public_address(tmp_path: Path) -> None:
    async with open_house(tmp_path, way="polling") as house:
        prompt = await house.prompt()
        press = await house.presses(prompt)
        assert press.text == "Confirmed."
        await house.until(lambda: DONE in house.texts())
        await house.until(lambda: not prompt.buttons)
        assert (house.shop.deleted, house.telegram.deliveries) == (["INV-42"], [])


async def test_an_update_that_is_not_stored_is_polled_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_house(tmp_path, way="polling") as house:
        house.model.script(["Hello."])
        await house.until(lambda: offsets(house) == [0])
        with closing(sqlite3.connect(tmp_path / "askfirst.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # no other connection can write now
            await house.telegram.person_says(house.ana, house.ana, "hi")
            await house.until(lambda: warnings(caplog))
            other.execute("ROLLBACK")
        assert [warning.partition(":")[0] for warning in warnings(caplog)] == ["telegram"]
        await house.until(lambda: house.texts() == ["Hello."])
        await house.until(lambda: offsets(house)[-1] > 0)
        assert offsets(house)[:2] == [0, 0]
        await house.idle()
        assert len(house.model.requests) == 1


async def test_webhook_in_the_way_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with open_house(tmp_path, way="polling") as house:
        await house.until(lambda: offsets(house))
        channel = house.gateway.channels["telegram"]
        await channel.register("http://127.0.0.1:9/webhooks/telegram")  # type: ignore[attr-defined]
        house.model.script(["One.", "Two."])
        await house.telegram.person_says(house.ana, house.ana, "first", wait=False)  # ends the poll that is under way
        await house.until(lambda: len(offsets(house)) > 2 and warnings(caplog))
        assert warnings(caplog) == [
            "telegram: a webhook is set, so nothing can be polled: remove it (askfirst webhooks delete)"
        ]
        await channel.unregister()  # type: ignore[attr-defined]
        await house.telegram.person_says(house.ana, house.ana, "second")
        await house.until(lambda: house.texts() == ["One.", "Two."])
