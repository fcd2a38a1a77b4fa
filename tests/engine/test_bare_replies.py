"""A bare word answers the question before its writer's eyes, by the platform's order of messages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from channels import DeliveryReport
from gateway.testing import ChatDriver
from tests.engine.bots import Invoices
from tests.engine.rig import rig, until
from tests.engine.test_tampered_records import CHAT


async def test_a_yes_written_before_the_question_decides_nothing(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "hello")
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "yes", after=1)
        assert invoices.deleted == []
        assert "answer with the code" in chat.last.text
        await chat.says("ana", "yes")
        assert invoices.deleted == ["INV-1"]


async def test_a_no_written_before_the_question_is_asked_about(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "hello")
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "no", after=1)
        assert "answer with the code" in chat.last.text
        await chat.says("ana", "no")
        assert "Delete invoice “INV-1”" in chat.last.text.replace("\\", "")
        assert "answer with the code" not in chat.last.text


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_a_question_under_the_models_words_takes_no_bare_word(invoices: Invoices, word: str) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "shall I look up something else?")
        assert "Nothing has been done yet" in chat.last.text
        await chat.says("ana", word)
        assert "answer with the code" in chat.last.text
        assert invoices.deleted == []


async def test_a_question_shown_again_alone_takes_a_bare_yes(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.clock.advance(300)
        await chat.says("ana", "yes")
        assert "answer with the code" in chat.last.text
        await chat.says("ana", "yes")
        assert invoices.deleted == ["INV-1"]


@pytest.mark.parametrize("command", ["/cancel yes", "/no yes", "/new ok CODE", "/undo ok CODE"])
@pytest.mark.parametrize("replies", [True, False])
async def test_a_command_never_decides(invoices: Invoices, command: str, replies: bool) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        code = chat.last.text.partition("**OK ")[2][:4]
        await chat.says("ana", command.replace("CODE", code), reply_to=1 if replies else None)
        assert invoices.deleted == []


@pytest.mark.parametrize("bare_yes", ["never", "reported"])
async def test_bare_yes_without_an_order_is_asked_about_and_no_refuses(
    tmp_path_factory: pytest.TempPathFactory, bare_yes: str
) -> None:
    for word, state in (("yes", "pending"), ("no", "closed")):
        invoices = Invoices()
        async with rig(invoices.bot(), tmp_path_factory.mktemp("files"), bare_yes=bare_yes) as chat:
            await chat.asks(1)
            await chat.handles("ana", word)
            assert [action.state for action in await chat.actions()] == [state]
        assert invoices.deleted == []


@pytest.mark.parametrize(("seconds", "counts"), [(1, False), (4, True)])
async def test_yes_counts_three_seconds_after_the_delivery_report(
    tmp_path_factory: pytest.TempPathFactory, seconds: float, counts: bool
) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(), tmp_path_factory.mktemp("files"), bare_yes="reported", reports=True) as chat:
        (action,) = await chat.asks(1)
        address = (await chat.worker.context.actions(CHAT)).index.address
        assert address is not None
        await chat.take(
            DeliveryReport(
                event_ids=("r",), address=address, person=None, message_id=action.prompts[0], status="delivered"
            )
        )
        chat.store.offset_seconds += seconds
        await chat.handles("ana", "yes")
    assert invoices.deleted == (["INV-1"] if counts else [])


async def test_what_waits_when_stop_is_said_is_not_asked(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        store = chat.engine.context.store
        first = asyncio.create_task(chat.says("ana", "wait"))
        await invoices.model.waiting.wait()
        second = asyncio.create_task(chat.says("ana", "delete INV-1"))
        while (await store.stats()).waiting < 2:
            await asyncio.sleep(0)
        third = asyncio.create_task(chat.says("ana", "/stop"))
        await until(lambda: any("Stopped" in message.text for message in chat.messages))
        invoices.model.let_go.set()
        await asyncio.gather(first, second, third)
        assert not any("INV" in message.text for message in chat.messages)


async def test_a_stop_counts_however_many_others_say_it_after(invoices: Invoices, tmp_path: Path) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        await chat.says("ana", "delete INV-1", place="#team", mentions_bot=True)
        await chat.says("ana", "/stop", place="#team")
        for number in range(101):
            await chat.says(f"guest{number}", "/stop", place="#team")
        await chat.work()
        assert [(action.args["invoice_id"], action.reason) for action in await chat.actions()] == [
            ("INV-1", "withdrawn")
        ]
        await chat.handles("ana", "delete INV-2", place="#team", mentions_bot=True)
        assert [each.args["invoice_id"] for each in await chat.actions() if each.open] == ["INV-2"]
