"""Words and verbs in a chat: what is answered is what was asked, and nothing that looks like an answer is lost."""

from __future__ import annotations

import pytest

from gateway import Confirm
from gateway.testing import ChatDriver
from tests.engine.bots import Invoices

MISSED = [
    ("Pay invoice {invoice_id}?", "en", "yes, delete it"),
    ("Send newsletter {invoice_id}?", "en", "yes, delete them"),
    ("Pagar a fatura {invoice_id}?", "pt", "pode apagar"),
    ("Enviar {invoice_id}?", "es", "puedes borrarlo"),
    ("Restore file {invoice_id}?", "en", "yes, remove it"),
    ("Cancel order {invoice_id}?", "en", "cancel it"),
]


@pytest.mark.parametrize(("question", "language", "words"), MISSED)
@pytest.mark.parametrize("replies", [True, False])
async def test_answer_with_another_verb_decides_nothing(
    invoices: Invoices, question: str, language: str, words: str, replies: bool
) -> None:
    async with ChatDriver(invoices.bot(confirm=question, language=language)) as chat:
        await chat.says("ana", "delete INV-1")
        asked = len(invoices.model.requests)
        await chat.says("ana", words, reply_to=1 if replies else None)
        assert invoices.deleted == []
        assert len(invoices.model.requests) == asked, "the model hears nothing that looks like an answer"
        assert "INV" in chat.last.text and chat.last.buttons


async def test_a_question_to_cancel_says_what_its_buttons_do(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(confirm="Cancel order {invoice_id}?")) as chat:
        await chat.says("ana", "delete INV-1")
        assert chat.last.buttons == ["Yes, do it", "No, do not", "Change"]
        await chat.presses("ana", "No, do not")
        assert invoices.deleted == []
        assert chat.last.text.replace("\\", "") == "Not done: Cancel order “INV-1”"
        assert "Not done, said Ana" in chat.messages[0].text


@pytest.mark.parametrize("words", ["sim", "OK FM63", "ok 7777"])
async def test_what_looks_like_an_answer_is_answered_by_the_gateway(invoices: Invoices, words: str) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        asked = len(invoices.model.requests)
        await chat.says("ana", words)
        assert len(invoices.model.requests) == asked
        assert "answer with the code" in chat.last.text
        assert invoices.deleted == []


async def test_forty_late_words_are_three_questions_and_a_line_each(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(confirm=Confirm("Delete {invoice_id}?", ttl_seconds=86400))) as chat:
        await chat.says("ana", "delete INV-1")
        for _ in range(40):
            await chat.clock.advance(61)
            await chat.says("ana", "yes", after=0)
        prompts = [message for message in chat.messages if message.buttons]
        assert len(prompts) == 3
        assert chat.last.text.startswith("Not done yet (OK ")
        (action,) = (await chat.engine.context.actions("agent/test:bot:ana")).open
        assert len(action.tokens) == 9


async def test_unclear_answers_are_told_three_times_then_once_a_minute(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.clock.advance(120)
        for _ in range(40):
            await chat.says("ana", "yes", after=0)
        assert len(chat.messages) == 1 + 3
        assert len(invoices.model.requests) == 1, "and never reaches the model"
        await chat.clock.advance(61)
        await chat.says("ana", "yes", after=0)
        assert len(chat.messages) == 1 + 4
