"""People see the bot's answers on Telegram: text, files, commands, typing, edits, topics."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from pypdf import PdfReader

from tests.e2e.house import House, delete, open_house
from tests.fakes.openai import Call, Say
from tests.fakes.telegram import Message


def styled(message: Message) -> dict[str, str]:
    """What of a text has which style (no text here has two of one kind)."""
    return {e["type"]: message.text[e["offset"] : e["offset"] + e["length"]] for e in message.entities}


def page_of(message: Message) -> str:
    assert message.file is not None
    return PdfReader(io.BytesIO(message.file.content)).pages[0].extract_text()


async def test_markdown_is_shown_as_telegram_formats_it(house: House) -> None:
    said = "# Invoices\n\nTwo are **open**, `INV-7` is *late*, [see](https://example.com/7).\n\n- one\n- two_three"
    answer = await house.asks("tell me", said)
    assert answer.text == "Invoices\n\nTwo are open, INV-7 is late, see.\n\n• one\n• two_three"
    shown = styled(answer)
    assert {"code": "INV-7", "italic": "late", "text_link": "see"}.items() <= shown.items()


async def test_a_tool_is_called_and_the_model_goes_on_with_its_result(house: House) -> None:
    answer = await house.asks("list invoices", Call("list_invoices", {}), "You have INV-7 and INV-42.")
    assert answer.text == "You have INV-7 and INV-42."
    result = house.model.requests[-1]["messages"][-1]
    assert (result["role"], result["content"]) == ("tool", "INV-7, INV-42")


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


async def test_long_answer_is_split_at_telegrams_limit_without_loss(house: House) -> None:
    paragraphs = [f"Paragraph {number} of **many** with some words 🌈 to fill it." for number in range(150)]
    await house.asks("tell me all", "\n\n".join(paragraphs))
    await house.idle()
    texts = house.texts()
    assert len(texts) == 2
    assert "\n\n".join(texts) == "\n\n".join(paragraphs).replace("**", "")


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


async def test_own_command_is_answered_formatted(house: House) -> None:
    answer = await house.asks("/total@askfirst_bot CHF")
    assert (answer.text, styled(answer)) == ("410.20 CHF is open.", {"bold": "410.20 CHF"})


async def test_an_unknown_command_goes_to_the_model(house: House) -> None:
    await house.asks("/dance now", "I cannot dance.")
    assert house.model.requests[-1]["messages"][-1]["content"] == "/dance now"


async def test_pending_lists_what_waits_with_its_code(house: House) -> None:
    await house.prompt()
    listed = await house.asks("/pending")
    (action,) = await house.actions()
    assert listed.text.splitlines()[-1] == f"• Delete invoice “INV-42” for good? ({action.code})"


async def test_new_forgets_the_talk_and_keeps_what_is_asked(house: House) -> None:
    await house.asks("my cat is called Felix", "Nice.")
    prompt = await house.prompt()
    told = await house.asks("/new")
    assert told.text.startswith("This is a new conversation.")
    await house.asks("what is its name?", "I do not know.")
    assert "Felix" not in str(house.model.requests[-1]["messages"])
    await house.presses(prompt)
    await house.until(lambda: house.shop.deleted == ["INV-42"])


async def test_stop_ends_the_turn_and_withdraws_what_is_asked(house: House) -> None:
    prompt, hold = await house.prompt(), asyncio.Event()
    house.model.script([Say("never said", hold=hold)])
    await house.says("think")
    await house.model.wait_for(2)
    stopped = await house.asks("/stop")
    assert stopped.text == "Stopped. What was waiting for your answer will not be done."
    await house.until(lambda: not prompt.buttons)
    hold.set()
    await house.idle()
    late = await house.presses(prompt)
    assert late.text == "This is already cancelled."
    assert "never said" not in house.texts()
    assert house.shop.deleted == []


async def test_an_edit_before_it_is_read_replaces_the_text(house: House) -> None:
    hold = asyncio.Event()
    house.model.script([Say("One.", hold=hold), "Two."])
    await house.says("first")
    await house.model.wait_for(1)
    second = await house.says("show INV-7")
    await house.telegram.person_edits(second, "show INV-42")
    hold.set()
    await house.until(lambda: "Two." in house.texts())
    said = [m["content"] for m in house.model.requests[-1]["messages"] if m["role"] == "user"]
    assert said[-1].endswith("show INV-42")
    assert not any("INV-7" in text for text in said)


async def test_an_edit_into_a_yes_decides_nothing(house: House) -> None:
    await house.prompt()
    house.model.script(["Hm."])
    message = await house.says("wait a moment")
    await house.until(lambda: "Hm." in house.texts())
    await house.telegram.person_edits(message, "yes")
    await house.idle()
    assert house.shop.deleted == []


async def test_several_messages_while_it_thinks_are_one_turn(house: House) -> None:
    hold = asyncio.Event()
    house.model.script([Say("One.", hold=hold), "Two and three."])
    await house.says("one")
    await house.model.wait_for(1)
    await house.says("two")
    await house.says("three")
    hold.set()
    await house.until(lambda: house.texts() == ["One.", "Two and three."])
    said = [m["content"] for m in house.model.requests[-1]["messages"] if m["role"] == "user"]
    assert said[0] == "one" and "two" in said[-2] + said[-1] and "three" in said[-1]


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


async def test_the_bots_greeting_and_language_win(tmp_path: Path) -> None:
    async with open_house(tmp_path, options={"greeting": "Welcome to **the shop**.", "language": "es"}) as house:
        hello = await house.asks("/start")
        assert (hello.text, styled(hello)) == ("Welcome to the shop.", {"bold": "the shop"})
        assert (await house.asks("/pending")).text == "Nada espera tu respuesta."
