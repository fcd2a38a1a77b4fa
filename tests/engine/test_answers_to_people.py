"""Every press, stop, reason and open question of a person gets an answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels import Person
from gateway import Agent, ChannelAgent, Confirm, NothingDone, OutcomeUnknown, Preview, ToolFailed, tool
from gateway.agent import AgentConfig
from gateway.providers.base import ProviderError
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, message, rig, until

DELETE = ToolCall("delete_invoice", {"invoice_id": "INV-1"})


def bot(script: ScriptedProvider, *, after: Any = "receipt", **options: Any) -> tuple[ChannelAgent, list[str]]:
    done: list[str] = []

    @tool(confirm=Confirm("Delete {invoice_id}?", after=after))
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        done.append(invoice_id)
        return f"{invoice_id} is gone"

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "nothing"

    return ChannelAgent(Agent([delete_invoice, look], provider=script), **options), done


def code_of(text: str) -> str:
    return text.partition("**OK ")[2][:4]


@asynccontextmanager
async def asked(*steps: Any, **options: Any) -> AsyncIterator[tuple[ChatDriver, ScriptedProvider, list[str]]]:
    """Yield a chat after Ana was asked about INV-1, the model with these further steps, and the list of deletions."""
    script = ScriptedProvider([DELETE, *steps])
    own, done = bot(script, **options)
    async with ChatDriver(own) as chat:
        await chat.says("ana", "delete INV-1")
        yield chat, script, done


# ── presses without alerts ──


async def press(chat: Rig, token: str) -> list[str]:
    """Press a button, and return the texts shown afterwards."""
    before = len(chat.platform.sent)
    await chat.presses(token)
    lease = await chat.store.lease("w", ["action"])
    if lease is not None:
        await chat.worker.engine._actions.run(lease)
    await chat.turns()
    return [str(part.arguments["text"]) for _, part in chat.platform.sent[before:] if part.call == "show"]


async def test_finding_17_stale_press_is_answered_once_a_minute(chat: Rig) -> None:
    await chat.hears("ana", "delete INV-1")
    token = chat.platform.sent[-1][1].buttons[0].token
    assert await press(chat, token) == ["Invoice INV-1 is deleted."]
    (told,) = await press(chat, token)
    assert told.startswith("This is already done")
    assert "INV" in told
    assert await press(chat, token) == []
    await chat.advance(61)
    assert len(await press(chat, token)) == 1


async def test_finding_17_an_unknown_press_is_answered_in_the_chat(chat: Rig) -> None:
    (told,) = await press(chat, "nonsense")
    assert told.startswith("I no longer know this button")


# ── stops ──


async def test_finding_17_stop_names_the_running_effect(invoices: Invoices) -> None:
    invoices.hold = asyncio.Event()
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        pressing = asyncio.create_task(chat.presses("ana", "Confirm"))
        await invoices.running.wait()
        stopping = asyncio.create_task(chat.says("ana", "/stop"))
        await until(lambda: any("cannot be stopped" in message.text for message in chat.messages))
        invoices.hold.set()
        await asyncio.gather(pressing, stopping)
        texts = [message.text for message in chat.messages]
        assert not any("There is nothing to stop" in text for text in texts)
        assert "Invoice INV-1 is deleted." in texts


# ── unclear answers ──


@pytest.mark.parametrize("words", ["ok", "Sure, thanks!", "2", "please"])
async def test_bare_acknowledgement_is_asked_for_the_code(words: str) -> None:
    async with asked() as (chat, script, done):
        await chat.says("ana", words)
        code = code_of(chat.last.text)
        assert chat.last.text.startswith(f"Almost: add the code, **OK {code}**.")
        assert (len(script.requests), done) == (1, [])
        await chat.says("ana", f"ok {code}")
        assert done == ["INV-1"]


async def test_an_acknowledgement_of_another_message_goes_to_the_model() -> None:
    async with asked("It is of May.", "Good.") as (chat, script, done):
        await chat.says("ana", "of which month is it?")
        assert chat.last.text.startswith("Nothing has been done yet.")
        await chat.says("ana", "2")
        assert (len(script.requests), done) == (3, [])
        assert not any(message.text.startswith("Almost") for message in chat.messages)


async def test_without_a_question_an_ok_goes_to_the_model() -> None:
    async with asked("You are welcome.") as (chat, script, done):
        await chat.says("ana", "no")
        await chat.says("ana", "ok")
        assert (len(script.requests), done) == (2, [])
        assert chat.last.text == "You are welcome."


async def test_acknowledgements_show_the_question_twice_at_most() -> None:
    async with asked() as (chat, script, done):
        for _ in range(3):
            await chat.says("ana", "ok")
        told = [message.text.partition(" ")[0] for message in chat.messages[1:]]
        assert told == ["**Delete", "Almost:", "Still"], "the older one has lost its buttons and its hint"
        assert (len(script.requests), done) == (1, [])


async def test_in_a_group_the_ok_of_an_approver_is_answered() -> None:
    script = ScriptedProvider([DELETE, "Hello Ben."])
    own, done = bot(script)
    async with ChatDriver(own) as chat:
        await chat.says("ana", "delete INV-1", group="team")
        await chat.says("ana", "ok", group="team")
        assert chat.last.text.startswith("Almost: add the code")
        await chat.says("ben", "ok", group="team")
        assert (len(script.requests), done) == (2, [])


# ── open questions ──


def lines(chat: ChatDriver) -> list[str]:
    return [message.text for message in chat.messages if message.text.startswith("Still open")]


async def test_finding_19_open_question_is_shown_under_the_models_done() -> None:
    async with asked(*["Done: Delete INV-1 for good."] * 6) as (chat, *_):
        for _ in range(2):
            await chat.says("ana", "and?")
            assert "Nothing has been done yet" in chat.messages[-1].text
        for said in (1, 1):
            await chat.says("ana", "and?")
            assert len(lines(chat)) == said
        await chat.clock.advance(600)
        await chat.says("ana", "and?")
        assert len(lines(chat)) == 1, "the line comes again after an hour, or with another number of questions"


async def test_open_question_is_shown_under_a_new_question() -> None:
    async with asked(ToolCall("delete_invoice", {"invoice_id": "INV-2"})) as (chat, *_):
        await chat.says("ana", "delete INV-2")
        (line,) = lines(chat)
        assert "INV" in line and "1" in line
        assert "2”?" in chat.messages[-2].text or "2”?" in chat.messages[-1].text


async def test_open_question_is_shown_under_a_resumed_turn() -> None:
    calls = [ToolCall("delete_invoice", {"invoice_id": f"INV-{number}"}) for number in (1, 2)]
    own, _ = bot(ScriptedProvider([calls, "Both are gone!"]), after="resume")
    async with ChatDriver(own) as chat:
        await chat.says("ana", "delete both")
        await chat.presses("ana", "Confirm 1")
        texts = [message.text for message in chat.messages]
        assert texts[texts.index("Both are gone!") + 1].startswith("Still open")


async def test_open_question_is_shown_under_a_failure() -> None:
    async with asked(ProviderError("test", "down", retryable=False)) as (chat, *_):
        await chat.says("ana", "and?")
        assert chat.messages[-2].text.startswith("I have a problem just now.")
        assert chat.messages[-1].text.startswith("Still open")


async def test_open_question_is_shown_after_too_many_steps() -> None:
    async with asked(ToolCall("look", {}), ToolCall("look", {})) as (chat, *_):
        chat.bot.agent.config = AgentConfig(max_iterations=1)
        await chat.says("ana", "look")
        assert "Nothing has been done yet" in chat.last.text or chat.last.text.startswith("Still open")


# ── resumed plans ──


@pytest.mark.parametrize("end", ["refused", "expired"])
async def test_finding_18_resumed_turn_does_not_repeat_a_failed_ask(end: str) -> None:
    async with asked(DELETE, "As you like.", DELETE, after="resume") as (chat, script, _):
        if end == "refused":
            await chat.presses("ana", "Cancel")
        else:
            await chat.clock.advance(901)
        assert chat.last.text == "As you like."
        assert len([message for message in chat.messages if "Delete" in message.text and "**OK" in message.text]) <= 1
        (error,) = [
            m.content for m in script.requests[-1].messages if m.role == "tool" and "not confirmed since" in m.content
        ]
        assert "do not ask again" in error
        await chat.says("ana", "try it once more")
        assert "**OK" in chat.last.text, "the person has written since"


async def test_finding_18_yes_after_a_resumed_turn_reaches_the_model() -> None:
    async with asked("Shall I also tell you about B?", "B is fine.", after="resume") as (chat, _, done):
        await chat.presses("ana", "Confirm")
        assert done == ["INV-1"]
        await chat.says("ana", "yes")
        assert chat.last.text == "B is fine."


async def test_finding_18_yes_after_a_notice_reaches_the_model() -> None:
    async with asked("You are booked.") as (chat, *_):
        await chat.presses("ana", "Confirm")
        await chat.bot.notify("test:bot:ana", "Shall I book the usual table?")
        await chat.clock.advance(1)
        await chat.says("ana", "yes")
        assert chat.last.text == "You are booked."


# ── a reason ──


async def test_a_no_with_its_reason_is_told_to_people_and_to_the_model() -> None:
    async with asked("I see.") as (chat, script, done):
        await chat.says("ana", f"NO {code_of(chat.last.text)} wrong *amount*, see [x](https://evil.example)")
        assert chat.last.text.startswith("Not done. Ana said “wrong ")
        assert "](https" not in chat.last.text, "a person's words are never live"
        assert "Ana said “wrong" in chat.messages[0].text
        await chat.says("ana", "why?")
        (event,) = [m.content for m in script.requests[-1].messages if m.role == "event" and "refused" in m.content]
        assert "They said: wrong *amount*" in event
        assert done == []


async def test_code_followed_by_other_words_is_no_yes() -> None:
    async with asked("Only half?") as (chat, script, done):
        await chat.says("ana", f"OK {code_of(chat.last.text)} but only half")
        assert done == []
        assert len(script.requests) == 2


async def test_finding_12_failure_is_told_twice_in_different_words() -> None:
    @tool(confirm=True)
    async def risky(n: int) -> str:
        """Fail."""
        raise RuntimeError(n)

    script = ScriptedProvider([ToolCall("risky", {"n": 3})])
    async with ChatDriver(ChannelAgent(Agent([risky], provider=script))) as chat:
        await chat.says("ana", "go")
        assert chat.last.text.startswith("**Run “risky”?**\n- n: 3\n")
        await chat.presses("ana", "Confirm")
        question, outcome = (message.text for message in chat.messages)
    assert re.fullmatch(r"\*\*Run “risky”\*\*\n- n: 3\n\n❌ Confirmed by Ana, failed \d{1,2}:\d\d UTC\.", question)
    assert outcome == "It did not work: Run “risky”"
    sentences = [set(re.split(r"(?<=[.:]) |\n", text)) for text in (question, outcome)]
    assert not sentences[0] & sentences[1]


async def test_finding_14_settled_question_keeps_its_table() -> None:
    async def about_to_delete(invoice_id: str) -> Preview:
        return Preview(text=f"Delete {invoice_id}?", table=[("Amount", "410.20 EUR")])

    @tool(confirm=about_to_delete)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        return "gone"

    async with ChatDriver(ChannelAgent(Agent([delete_invoice], provider=ScriptedProvider([DELETE])))) as chat:
        await chat.says("ana", "delete it")
        await chat.presses("ana", "Confirm")
        assert "- Amount: “410\\.20 EUR”\n- invoice\\_id: INV\\-1\n" in chat.messages[0].text
        for number in (1, 2):
            await chat.says("ana", "yes")
            assert [message.text for message in chat.messages[2:]] == [
                "This is already done\\.\n\nDelete INV\\-1"
            ] * number


async def test_refusal_of_an_unnamed_person_is_quoted_as_you_said(tmp_path: Path) -> None:
    own, done = bot(ScriptedProvider([DELETE]))
    async with rig(own, tmp_path) as chat:
        await chat.hears("ana", "delete INV-1")
        code = code_of(chat.platform.texts()[0])
        nobody = Person(channel="test", account="bot", user_id="ana")
        await chat.take(replace(message("ana", f"NO {code} wrong amount"), person=nobody))
        await chat.turns()
        told, question = chat.platform.texts()[1:]
    assert told == "Not done. You said “wrong amount”: Delete “INV\\-1”"
    assert question.endswith("🚫 Not done. You said “wrong amount”.")
    assert done == []


async def test_events_name_the_action_its_person_and_its_end() -> None:
    own, _ = bot(ScriptedProvider([DELETE]))
    told: list[tuple[str, str, str, str]] = []

    def note(name: str, action: PendingAction, *how: str) -> None:
        told.append((name, action.conversation, action.kind, "/".join(how)))

    own.on("pending_stashed")(lambda run_id, action: note("stashed", action))
    own.on("pending_decided")(lambda action, person, intent: note("decided", action, person, intent))
    own.on("pending_launched")(lambda action: note("launched", action))
    own.on("pending_resolved")(lambda action, status: note("resolved", action, status))
    async with ChatDriver(own) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.presses("ana", "Confirm")
    where = ("agent/test:bot:ana", "delete_invoice")
    assert told == [
        ("stashed", *where, ""),
        ("decided", *where, "test:bot:ana/confirm"),
        ("launched", *where, ""),
        ("resolved", *where, "done"),
    ]


# ── why a confirmed action failed ──


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ToolFailed("the card was declined"), r"error: ToolFailed: the card was declined"),
        (NothingDone("the card has expired"), r"error: NothingDone: the card has expired"),
        (OutcomeUnknown("the bank hung up"), r"error: OutcomeUnknown: the bank hung up"),
        (ValueError("card 4111 1111"), r"error: ValueError \(test_answers_to_people\.py:\d+ pay\)"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_model_reads_the_intended_error_text_of_a_confirmed_tool(error: Exception, told: str) -> None:
    @tool(confirm="Pay?")
    async def pay() -> str:
        """Pay."""
        raise error

    script = ScriptedProvider([ToolCall("pay", {}), "Sorry."])
    async with ChatDriver(ChannelAgent(Agent([pay])), provider=script) as chat:
        await chat.says("ana", "pay")
        await chat.presses("ana", "Confirm")
        await chat.says("ana", "why not?")
        said = [message.text for message in chat.messages]
    (noted,) = [line.content for line in script.requests[-1].messages if line.content.startswith("pay (")]
    assert re.search(rf" Result: {told}$", noted), noted
    assert str(error) not in str(said)
