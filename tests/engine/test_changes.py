"""Changing instead of refusing: the changed question takes the place of the first, of which nothing runs afterwards."""

from __future__ import annotations

import re

import pytest

from gateway.providers.base import Request, Response, ToolCall
from gateway.testing import ChatDriver
from tests.engine.bots import Invoices, Model


class Changing(Model):
    """Asks for the invoice that the last message names, as a model would."""

    async def complete(self, request: Request) -> Response:
        said = next((message.content for message in reversed(request.messages) if message.role == "user"), "")
        numbers = re.findall(r"\bINV-\d+", said)
        if request.messages[-1].role == "user" and numbers:
            self.requests.append(request)
            calls = [
                ToolCall(call_id=f"c{number}", name="delete_invoice", args={"invoice_id": each})
                for number, each in enumerate(numbers)
            ]
            return Response(tool_calls=tuple(calls), finish="tools")
        return await super().complete(request)


@pytest.fixture
def invoices() -> Invoices:
    made = Invoices()
    made.model = Changing()
    return made


async def opened(chat: ChatDriver) -> list[str]:
    return [str(each.args["invoice_id"]) for each in (await chat.engine.context.actions("agent/test:bot:ana")).open]


def told(invoices: Invoices) -> str:
    return "\n".join(message.content for message in invoices.model.requests[-1].messages if message.role == "event")


async def test_condition_in_the_answer_changes_the_question(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "yes, but INV-7")
        assert await opened(chat) == ["INV-7"]
        assert "The person's message says how to change this one: delete_invoice" in told(invoices)
        first, second = [message for message in chat.messages if "Delete invoice" in message.text]
        assert "Changed meanwhile: a new question takes its place." in first.text and first.buttons == []
        assert "INV\\-7" in second.text
        await chat.says("ana", "yes")
        assert invoices.deleted == ["INV-7"]


async def test_change_button_asks_how_and_the_answer_changes_it(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.presses("ana", "Change")
        assert chat.last.text == "Write what should be different: Delete invoice “INV\\-42” for good"
        await chat.says("ana", "INV-7 please")
        assert await opened(chat) == ["INV-7"]
        with pytest.raises(LookupError):
            await chat.presses("ana", "Nothing")
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-7"]


async def test_old_code_and_button_of_the_changed_question_do_nothing(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        code = re.search(r"\bOK (\w{4})\b", chat.last.text)
        assert code is not None
        old = dict(chat.messages[0].tokens)
        await chat.says("ana", "yes, but INV-7")
        await chat.says("ana", f"OK {code[1]}")
        chat.messages[0].tokens = {"Old": old["Confirm"]}
        await chat.presses("ana", "Old")
        assert invoices.deleted == []
        assert "Changed meanwhile" in chat.alerts[-1]
        assert await opened(chat) == ["INV-7"]


async def test_first_is_shown_again_where_the_model_asks_nothing_new(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "yes, but not today")
        assert await opened(chat) == ["INV-42"]
        assert "Delete invoice “INV\\-42” for good?" in chat.last.text and "Confirm" in chat.last.buttons


async def test_change_that_changes_nothing_leaves_one_question(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "yes, but INV-42")
        assert await opened(chat) == ["INV-42"]
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-42"]


async def test_both_are_asked_where_the_model_calls_both(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "yes, INV-42 and INV-7 too")
        assert await opened(chat) == ["INV-42", "INV-7"]


async def test_refused_change_leaves_nothing_open(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "no, INV-7")
        await chat.says("ana", "no")
        assert await opened(chat) == []
        assert chat.last.text == "Not done: Delete invoice “INV\\-7” for good"
        assert invoices.deleted == []


async def test_another_person_does_not_change_it(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42", group="office")
        await chat.presses("ben", "Change")
        assert chat.alerts[-1] == "This is not yours to answer."


async def test_change_of_what_has_ended_says_so(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        token = chat.last.tokens["Change"]
        await chat.presses("ana", "Confirm")
        chat.messages[0].tokens = {"Late": token}
        await chat.presses("ana", "Late")
        assert chat.alerts[-1] == "This is already done."


async def test_another_message_in_between_forgets_the_press(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.presses("ana", "Change")
        await chat.says("ana", "hello")
        await chat.says("ana", "delete INV-7")
        assert await opened(chat) == ["INV-42", "INV-7"]
