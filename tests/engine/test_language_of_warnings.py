"""The warning of a duplicate is in the language of the person, also for replies that no turn wrote."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from channels import Ambiguous, Message, Reply
from gateway.limits import Limits, Share
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, message, rig

LOST = Ambiguous("timeout")
WARNING = say("may_be_duplicate", "pt")


@pytest.fixture
def portuguese(tmp_path: Path, invoices: Invoices) -> AbstractAsyncContextManager[Rig]:
    """A Portuguese bot that knows Ana alone."""
    return rig(invoices.bot(language="pt"), tmp_path, people=["test:bot:ana"])


def in_language(language: str, text: str) -> Message:
    event = message("ana", text)
    assert event.person is not None
    return replace(event, person=replace(event.person, language=language))


async def notify(chat: Rig, after_seconds: float) -> None:
    reply = Reply(text="A fatura venceu.")
    await chat.worker.engine.runtime.notify(here("ana"), reply, after_seconds=after_seconds)
    await chat.advance(after_seconds)
    while (await chat.store.stats()).pointed:
        await chat.worker.decisions.sweep(0)


async def deliver_in_doubt(chat: Rig) -> None:
    """The first call gets no answer, so that the reply is sent once more behind a warning."""
    chat.platform.will = [LOST]
    for _ in range(4):
        await chat.turns()
        await chat.advance(20)


async def test_a_stranger_is_warned_in_the_bots_language(portuguese: AbstractAsyncContextManager[Rig]) -> None:
    async with portuguese as chat:
        await chat.says("eve", "olá")
        await deliver_in_doubt(chat)
        assert chat.platform.texts("eve") == [WARNING, say("stranger", "pt")]


@pytest.mark.parametrize("after_seconds", [0.0, 5.0])
async def test_a_notification_is_warned_of_in_the_bots_language(
    portuguese: AbstractAsyncContextManager[Rig], after_seconds: float
) -> None:
    async with portuguese as chat:
        await notify(chat, after_seconds)
        await deliver_in_doubt(chat)
        assert chat.platform.texts() == [WARNING, "A fatura venceu."]


@pytest.mark.parametrize("after_seconds", [0.0, 5.0])
async def test_a_notification_is_warned_of_as_the_last_question(
    tmp_path: Path, invoices: Invoices, after_seconds: float
) -> None:
    async with rig(invoices.bot(), tmp_path) as chat:
        await chat.take(in_language("pt", "delete INV-1"))
        await chat.work()
        chat.platform.sent.clear()
        await notify(chat, after_seconds)
        await deliver_in_doubt(chat)
        assert chat.platform.texts() == [WARNING, "A fatura venceu."]


async def test_too_fast_is_warned_of_in_the_persons_language(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(), tmp_path, limits=Limits(messages=Share(1))) as chat:
        for _ in range(5):
            await chat.take(in_language("pt", "olá"))
        await deliver_in_doubt(chat)
        assert chat.platform.texts()[:2] == [WARNING, say("too_fast", "pt")]


async def test_code_beside_words_of_the_bots_language_decides(
    portuguese: AbstractAsyncContextManager[Rig], invoices: Invoices
) -> None:
    """The platform names no language for Ana, and English has no such words."""
    async with portuguese as chat:
        await chat.handles("ana", "delete INV-1")
        (action,) = await chat.actions()
        await chat.handles("ana", f"pode sim {action.code}")
        assert invoices.deleted == ["INV-1"]
