"""Changes: a question gives way to the next question of the same person, and has no effect afterwards."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator

import pytest

from channels import Address, Message, Parsed, Person, WebhookResponse
from gateway import Agent, ChannelAgent, Confirm, Standing, tool
from gateway.providers.base import Request, Response, ToolCall
from gateway.testing import ChatDriver, ScriptedProvider
from gateway.testing import ToolCall as Call
from tests.engine.bots import Invoices, Model


class Changing(Model):
    """Asks about the invoice named in the last messages, as a model would."""

    async def complete(self, request: Request) -> Response:
        last = itertools.takewhile(lambda message: message.role in ("user", "event"), reversed(request.messages))
        said = " ".join(message.content for message in last if message.role == "user")
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
def changing() -> Invoices:
    made = Invoices()
    made.model = Changing()
    return made


@pytest.fixture
async def changes(changing: Invoices) -> AsyncIterator[ChatDriver]:
    """A chat after Ana was asked about INV-42."""
    async with ChatDriver(changing.bot()) as chat:
        await chat.says("ana", "delete INV-42")
        yield chat


async def opened(chat: ChatDriver) -> list[str]:
    return [str(each.args["invoice_id"]) for each in (await chat.engine.context.actions("agent/test:bot:ana")).open]


def told(changing: Invoices) -> str:
    return "\n".join(message.content for message in changing.model.requests[-1].messages if message.role == "event")


async def test_condition_in_the_answer_changes_the_question(changes: ChatDriver, changing: Invoices) -> None:
    await changes.says("ana", "yes, but INV-7")
    assert await opened(changes) == ["INV-7"]
    assert "The person's message says how to change this one: delete_invoice" in told(changing)
    first, second = [message for message in changes.messages if "Delete invoice" in message.text]
    assert "Changed meanwhile: a new question takes its place." in first.text and first.buttons == []
    assert "INV\\-7" in second.text
    await changes.says("ana", "yes")
    assert changing.deleted == ["INV-7"]


async def test_change_button_asks_how_and_the_answer_changes_it(changes: ChatDriver, changing: Invoices) -> None:
    await changes.presses("ana", "Change")
    assert changes.last.text == "Write what should be different: Delete invoice “INV\\-42” for good"
    await changes.says("ana", "INV-7 please")
    assert await opened(changes) == ["INV-7"]
    with pytest.raises(LookupError):
        await changes.presses("ana", "Nothing")
    await changes.presses("ana", "Confirm")
    assert changing.deleted == ["INV-7"]


async def test_old_code_and_button_of_the_changed_question_are_dead(changes: ChatDriver, changing: Invoices) -> None:
    code = re.search(r"\bOK (\w{4})\b", changes.last.text)
    assert code is not None
    old = dict(changes.messages[0].tokens)
    await changes.says("ana", "yes, but INV-7")
    await changes.says("ana", f"OK {code[1]}")
    changes.messages[0].tokens = {"Old": old["Confirm"]}
    await changes.presses("ana", "Old")
    assert changing.deleted == []
    assert "Changed meanwhile" in changes.alerts[-1]
    assert await opened(changes) == ["INV-7"]


async def test_refused_change_leaves_no_open_question(changes: ChatDriver, changing: Invoices) -> None:
    await changes.says("ana", "yes, but INV-7")
    await changes.says("ana", "no")
    assert await opened(changes) == []
    assert changes.last.text == "Not done: Delete invoice “INV\\-7” for good"
    assert changing.deleted == []


@pytest.mark.parametrize(
    ("words", "open_left"),
    [
        ("yes, but not today", ["INV-42"]),
        ("yes, but INV-42", ["INV-42"]),
        ("yes, INV-42 and INV-7 too", ["INV-42", "INV-7"]),
    ],
)
async def test_words_beside_a_yes_leave_these_questions(
    changes: ChatDriver, changing: Invoices, words: str, open_left: list[str]
) -> None:
    await changes.says("ana", words)
    assert await opened(changes) == open_left
    if len(open_left) == 1:
        assert "Delete invoice “INV\\-42” for good?" in changes.last.text
        await changes.presses("ana", "Confirm")
    assert changing.deleted == (open_left if len(open_left) == 1 else [])


async def writes_at_once(chat: ChatDriver, *texts: str) -> None:
    """Send several messages of Ana before a turn reads the first."""
    inbox, channel = chat.engine.inbox, chat.engine.context.channels["test"]
    for number, text in enumerate(texts):
        message = Message(
            event_ids=(f"quick {number}",),
            address=Address(channel="test", account="bot", place="ana"),
            person=Person(channel="test", account="bot", user_id="ana", name="Ana"),
            message_id=f"quick {number}",
            text=text,
        )
        await inbox.accept(channel, Parsed(events=(message,), response=WebhookResponse()))
    await chat._idle()


@pytest.mark.parametrize("texts", [("hm", "INV-7 please"), ("INV-7 please", "thanks"), ("one moment", "INV-7", "now")])
async def test_change_holds_over_messages_at_once(
    changes: ChatDriver, changing: Invoices, texts: tuple[str, ...]
) -> None:
    """Defect 10: the change was lost, both questions stayed open, and both ran by their codes."""
    code = re.search(r"\bOK (\w{4})\b", changes.last.text)
    assert code is not None
    await changes.presses("ana", "Change")
    await writes_at_once(changes, *texts)
    assert await opened(changes) == ["INV-7"]
    await changes.says("ana", f"OK {code[1]}")
    assert changing.deleted == []


async def test_call_of_an_open_question_does_not_end_a_change(changes: ChatDriver, changing: Invoices) -> None:
    await changes.says("ana", "delete INV-7")
    first = changes.messages[0].tokens["Change"]
    changes.messages[0].tokens = {"Change it": first}
    await changes.presses("ana", "Change it")
    await changes.says("ana", "INV-7 please")
    assert await opened(changes) == ["INV-42", "INV-7"], "the equal question is joined, and the change goes on"
    await changes.says("ana", "INV-8 rather")
    assert await opened(changes) == ["INV-7", "INV-8"]


async def test_yes_that_adds_asks_both(changes: ChatDriver, changing: Invoices) -> None:
    """Defect 16: "and also" closed the open question."""
    await changes.says("ana", "yes and also delete INV-8")
    assert await opened(changes) == ["INV-42", "INV-8"]


async def test_another_person_does_not_change_it(driver: ChatDriver) -> None:
    await driver.says("ana", "delete INV-42", group="office")
    await driver.presses("ben", "Change")
    assert driver.alerts[-1] == "This is not yours to answer."


async def test_change_of_an_ended_action_says_that_it_is_done(changes: ChatDriver) -> None:
    token = changes.last.tokens["Change"]
    await changes.presses("ana", "Confirm")
    changes.messages[0].tokens = {"Late": token}
    await changes.presses("ana", "Late")
    assert changes.alerts[-1] == "This is already done."


async def test_change_lasts_over_messages_until_the_child_is_asked(changes: ChatDriver) -> None:
    await changes.presses("ana", "Change")
    await changes.says("ana", "hello")
    await changes.says("ana", "delete INV-7")
    assert await opened(changes) == ["INV-7"]
    assert changes.last.text.startswith("I have changed it:\n\n**Delete invoice “INV\\-7” for good?**")
    await changes.says("ana", "delete INV-8")
    assert await opened(changes) == ["INV-7", "INV-8"]


async def test_bare_word_decides_no_question_that_is_being_changed(changes: ChatDriver, changing: Invoices) -> None:
    await changes.presses("ana", "Change")
    for word in ("yes", "no"):
        await changes.says("ana", word)
        assert "To be safe I need the code" in changes.last.text
    assert (await opened(changes), changing.deleted) == (["INV-42"], [])
    code = re.search(r"\bOK (\w{4})\b", changes.last.text)
    assert code is not None
    await changes.says("ana", f"OK {code[1]}")
    assert changing.deleted == ["INV-42"]
    await changes.says("ana", "delete INV-7")
    assert await opened(changes) == ["INV-7"]
    assert "I have changed it" not in changes.last.text


async def test_list_decides_no_question_that_is_being_changed(changes: ChatDriver, changing: Invoices) -> None:
    await changes.says("ana", "delete INV-7")
    await changes.presses("ana", "Change")
    await changes.says("ana", "yes")
    assert "Which one do you mean?" in changes.last.text
    for words in ("2", "both", "all", "none"):
        await changes.says("ana", words)
    assert (await opened(changes), changing.deleted) == (["INV-42", "INV-7"], [])


async def test_equal_call_beside_the_changed_one_leaves_one_question(changes: ChatDriver, changing: Invoices) -> None:
    """The old question's record was written once more, and the question told as changed stayed open."""
    code = re.search(r"\bOK (\w{4})\b", changes.last.text)
    assert code is not None
    await changes.presses("ana", "Change")
    await changes.says("ana", "not INV-42 but INV-7")
    assert await opened(changes) == ["INV-7"]
    await changes.says("ana", f"OK {code[1]}")
    assert changing.deleted == []


async def test_no_permission_covers_the_child_beside_an_equal_call() -> None:
    paid: list[tuple[str, int]] = []

    @tool(confirm=Confirm("Pay {amount} to {to}?", standing=Standing(max_seconds=3600, max_uses=5, same=("to",))))
    async def pay(to: str, amount: int) -> str:
        """Pay."""
        paid.append((to, amount))
        return "Paid."

    def call(to: str, amount: int) -> Call:
        return Call("pay", {"to": to, "amount": amount})

    script = ScriptedProvider([[call("B", 1)], [call("A", 500)], [call("A", 500), call("B", 500)], *["I see."] * 9])
    async with ChatDriver(ChannelAgent(Agent([pay], provider=script))) as chat:
        await chat.says("ana", "pay B 1")
        await chat.presses("ana", next(label for label in chat.last.buttons if label.startswith("Yes, and")))
        await chat.says("ana", "pay A 500")
        await chat.presses("ana", "Change")
        await chat.says("ana", "to B instead")
        assert paid == [("B", 1)]
        assert chat.last.text.startswith("I have changed it:") and "Pay 500 to “B”?" in chat.last.text


async def test_child_that_the_quota_refused_may_still_be_asked(invoices: Invoices) -> None:
    """The model asks for two, exceeding the quota by one, and then for one of the two."""

    def call(number: int) -> Call:
        return Call("delete_invoice", {"invoice_id": f"INV-{number}"})

    questions = [[call(number)] for number in range(19)]
    script = ScriptedProvider([*questions, [call(20), call(21)], [call(20)], *["I see."] * 9])
    async with ChatDriver(invoices.bot(), provider=script) as chat:
        for _ in range(18):
            await chat.says("ana", "delete one")
            await chat.presses("ana", "Cancel")
        await chat.says("ana", "delete the last one")
        await chat.presses("ana", "Change")
        await chat.says("ana", "INV-20 and INV-21 instead")
        assert await opened(chat) == ["INV-20"]


async def test_turn_resumed_after_an_outcome_changes_no_question() -> None:
    @tool(confirm=Confirm("Delete {name}?", after="resume"))
    async def delete(name: str) -> str:
        """Delete."""
        return f"{name} is deleted."

    def call(name: str) -> Call:
        return Call("delete", {"name": name})

    script = ScriptedProvider(
        [[call("one")], [call("two")], [call("next")], "I see.", [call("other")], *["I see."] * 9]
    )
    async with ChatDriver(ChannelAgent(Agent([delete], provider=script))) as chat:
        await chat.says("ana", "delete one")
        code = re.search(r"\bOK (\w{4})\b", chat.last.text)
        assert code is not None
        await chat.says("ana", "delete two")
        await chat.presses("ana", "Change")
        await chat.says("ana", f"OK {code[1]}")
        names = [each.args["name"] for each in (await chat.engine.context.actions("agent/test:bot:ana")).open]
        assert names == ["two", "next"]
