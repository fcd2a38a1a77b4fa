"""Decisions overtake turns, and a confirmation has one effect, once."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from channels import Address, Attachment, ButtonPress, DeliveryReport, Message, Parsed, Person, WebhookResponse
from gateway import Confirm
from gateway.testing import ChatDriver
from gateway.tools import Preview
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, rig, until
from tests.engine.test_tampered_records import CHAT, texts


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


async def test_64_presses_at_once_have_one_effect(driver: ChatDriver, invoices: Invoices) -> None:
    await driver.says("ana", "delete INV-42")
    await asyncio.gather(*(take(driver, press(driver, f"press {n}")) for n in range(64)))
    await idle(driver)
    assert invoices.deleted == ["INV-42"]
    assert len(driver.alerts) == 64
    assert driver.alerts.count("Confirmed.") == 1
    assert set(driver.alerts) <= {"Confirmed.", "This is already confirmed and running.", "This is already done."}


async def test_a_press_redelivered_is_one_press(driver: ChatDriver, invoices: Invoices) -> None:
    await driver.says("ana", "delete INV-42")
    await asyncio.gather(*(take(driver, press(driver, "the same")) for _ in range(8)))
    await idle(driver)
    assert (invoices.deleted, driver.alerts) == (["INV-42"], ["Confirmed."])


async def test_a_press_during_a_long_turn_is_executed_at_once(driver: ChatDriver, invoices: Invoices) -> None:
    await driver.says("ana", "delete INV-42")
    saying = asyncio.create_task(driver.says("ana", "wait"))
    await invoices.model.waiting.wait()
    started = time.monotonic()
    await take(driver, press(driver, "now"))
    await until(lambda: driver.last.text == "Invoice INV-42 is deleted.")
    assert time.monotonic() - started < 20
    invoices.model.let_go.set()
    await saying
    assert invoices.deleted == ["INV-42"]
    assert driver.last.text == "You said: wait"


@pytest.mark.parametrize("token", ["", "x", "00" + "A" * 22, "99" + "A" * 22, "é" * 24, "0" * 5000])
async def test_guessed_token_decides_no_action(driver: ChatDriver, invoices: Invoices, token: str) -> None:
    await driver.says("ana", "delete INV-42")
    await take(driver, press(driver, "guess", token=token or "-"))
    await idle(driver)
    assert invoices.deleted == []
    assert driver.alerts == ["I no longer know this button. Ask again if you still want it."]


async def test_joint_prompt_keeps_its_other_buttons_after_an_answer(driver: ChatDriver, invoices: Invoices) -> None:
    await driver.says("ana", "delete INV-1 INV-2 INV-3")
    buttons = driver.last.buttons
    code = re.findall(r"\d \*\*OK (\w{4})", driver.last.text.splitlines()[-1])[2]
    await driver.presses("ana", "Confirm 1")
    prompt = driver.messages[0]
    assert prompt.buttons == buttons, "a second tap must not land on another question"
    text = prompt.text.replace("\\", "")
    assert text.index("Confirmed by Ana") < text.index("Delete invoice “INV-2” for good?")
    assert "Delete invoice “INV-1” for good?" not in text

    await driver.presses("ana", "Confirm 1")
    assert invoices.deleted == ["INV-1"]
    assert "already done" in driver.alerts[-1]
    await driver.says("ana", f"NO {code}")
    assert driver.messages[0].buttons == buttons
    await driver.presses("ana", "Confirm 2")
    assert invoices.deleted == ["INV-1", "INV-2"]
    prompt = driver.messages[0]
    assert prompt.buttons == []
    text = prompt.text.replace("\\", "")
    said = [text.index(words) for words in ("INV-1", "Confirmed by", "INV-2", "INV-3", "Not done, said Ana")]
    assert said == sorted(said)


async def test_stop_withdraws_all_questions_of_one_prompt(driver: ChatDriver) -> None:
    await driver.says("ana", "delete INV-1 INV-2")
    await driver.says("ana", "/stop")
    prompt = driver.messages[0]
    assert prompt.buttons == []
    assert prompt.text.count("Withdrawn. Nothing was done.") == 2


async def test_a_tool_that_fails_is_told_without_its_words(invoices: Invoices) -> None:
    invoices.error = RuntimeError("password=hunter2")
    async with ChatDriver(invoices.bot()) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.presses("ana", "Confirm")
        assert chat.last.text.startswith("It did not work: ")
        assert not any("hunter2" in message.text for message in chat.messages)
        await chat.says("ana", "yes")
        assert chat.last.text.startswith("It did not work")


async def test_an_equal_ask_joins_the_open_one(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.says("ana", "delete INV-1")
    first, second = (dict(message.tokens) for message in asked.messages[:2])
    assert first != second
    await asked.presses("ana", "Confirm")
    assert invoices.deleted == ["INV-1"]
    assert all(not message.buttons for message in asked.messages)


async def test_yes_written_before_the_question_decides_no_action(driver: ChatDriver, invoices: Invoices) -> None:
    await driver.says("ana", "hello")
    await driver.says("ana", "delete INV-1")
    await driver.says("ana", "yes", after=1)
    assert invoices.deleted == []
    assert "To be safe I need the code" in driver.last.text
    await driver.says("ana", "yes")
    assert invoices.deleted == ["INV-1"]


async def test_a_no_written_before_the_question_is_asked_about(driver: ChatDriver) -> None:
    await driver.says("ana", "hello")
    await driver.says("ana", "delete INV-1")
    await driver.says("ana", "no", after=1)
    assert "To be safe I need the code" in driver.last.text
    await driver.says("ana", "no")
    assert "Delete invoice “INV-1”" in driver.last.text.replace("\\", "")
    assert "To be safe I need the code" not in driver.last.text


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_a_question_under_the_models_words_takes_no_bare_word(
    asked: ChatDriver, invoices: Invoices, word: str
) -> None:
    await asked.says("ana", "shall I look up something else?")
    assert "Nothing has been done yet" in asked.last.text
    await asked.says("ana", word)
    assert "To be safe I need the code" in asked.last.text
    assert invoices.deleted == []


async def test_a_question_shown_again_alone_takes_a_bare_yes(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.clock.advance(61)
    await asked.says("ana", "yes")
    assert "To be safe I need the code" in asked.last.text
    await asked.says("ana", "yes")
    assert invoices.deleted == ["INV-1"]


@pytest.mark.parametrize("command", ["/cancel yes", "/no yes", "/new ok CODE", "/undo ok CODE"])
@pytest.mark.parametrize("replies", [True, False])
async def test_a_command_never_decides(asked: ChatDriver, invoices: Invoices, command: str, replies: bool) -> None:
    code = asked.last.text.partition("**OK ")[2][:4]
    await asked.says("ana", command.replace("CODE", code), reply_to=1 if replies else None)
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
    tmp_path_factory: pytest.TempPathFactory, seconds: float, counts: bool, invoices: Invoices
) -> None:
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


async def test_message_waiting_at_a_stop_asks_no_question(driver: ChatDriver, invoices: Invoices) -> None:
    store = driver.engine.context.store
    first = asyncio.create_task(driver.says("ana", "wait"))
    await invoices.model.waiting.wait()
    second = asyncio.create_task(driver.says("ana", "delete INV-1"))
    while (await store.stats()).waiting < 2:
        await asyncio.sleep(0)
    third = asyncio.create_task(driver.says("ana", "/stop"))
    await until(lambda: any("Stopped" in message.text for message in driver.messages))
    invoices.model.let_go.set()
    await asyncio.gather(first, second, third)
    assert not any("INV" in message.text for message in driver.messages)


async def test_a_stop_counts_however_many_others_say_it_after(chat: Rig) -> None:
    await chat.says("ana", "delete INV-1", place="#team", mentions_bot=True)
    await chat.says("ana", "/stop", place="#team")
    for number in range(101):
        await chat.says(f"guest{number}", "/stop", place="#team")
    await chat.work()
    assert [(action.args["invoice_id"], action.reason) for action in await chat.actions()] == [("INV-1", "withdrawn")]
    await chat.handles("ana", "delete INV-2", place="#team", mentions_bot=True)
    assert [each.args["invoice_id"] for each in await chat.actions() if each.open] == ["INV-2"]
    await chat.handles("guest1", "/stop", place="#team")
    assert [each.args["invoice_id"] for each in await chat.actions() if each.open] == ["INV-2"], "it is Ana's"


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
async def test_answer_with_another_verb_decides_no_action(
    invoices: Invoices, question: str, language: str, words: str, replies: bool
) -> None:
    async with ChatDriver(invoices.bot(confirm=question, language=language)) as chat:
        await chat.says("ana", "delete INV-1")
        requests = len(invoices.model.requests)
        await chat.says("ana", words, reply_to=1 if replies else None)
        assert invoices.deleted == []
        assert len(invoices.model.requests) == requests, "the model hears nothing that looks like an answer"
        assert "INV" in chat.last.text and chat.last.buttons


async def test_buttons_of_a_question_to_cancel_name_their_effect(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(confirm="Cancel order {invoice_id}?")) as chat:
        await chat.says("ana", "delete INV-1")
        assert chat.last.buttons == ["Yes, do it", "No, do not", "Change"]
        await chat.presses("ana", "No, do not")
        assert invoices.deleted == []
        assert chat.last.text.replace("\\", "") == "Not done: Cancel order “INV-1”"
        assert "Not done, said Ana" in chat.messages[0].text


@pytest.mark.parametrize("words", ["sim", "OK FM63", "ok 7777"])
async def test_words_like_an_answer_are_answered_by_the_gateway(
    asked: ChatDriver, invoices: Invoices, words: str
) -> None:
    requests = len(invoices.model.requests)
    await asked.says("ana", words)
    assert len(invoices.model.requests) == requests
    assert "To be safe I need the code" in asked.last.text
    assert invoices.deleted == []


async def test_forty_late_words_are_three_questions_and_a_line_each(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(confirm=Confirm("Delete {invoice_id}?", ttl_seconds=86400))) as chat:
        await chat.says("ana", "delete INV-1")
        for _ in range(40):
            await chat.clock.advance(61)
            await chat.says("ana", "yes", after=0)
        asked = [message for message in chat.messages if "You have" in message.text]
        assert [bool(message.buttons) for message in asked] == [False, False, True]
        assert chat.last.text.startswith("Still open: Delete “INV\\-1” (OK ")
        (action,) = (await chat.engine.context.actions("agent/test:bot:ana")).open
        assert len(action.tokens) == 9


async def test_unclear_answers_are_told_three_times_then_once_a_minute(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.clock.advance(120)
    for _ in range(40):
        await asked.says("ana", "yes", after=0)
    assert len(asked.messages) == 1 + 3
    assert len(invoices.model.requests) == 1, "and never reaches the model"
    await asked.clock.advance(61)
    await asked.says("ana", "yes", after=0)
    assert len(asked.messages) == 1 + 4


@pytest.mark.parametrize(("minutes", "deleted"), [(14, ["INV-1"]), (16, [])])
async def test_approval_is_launched_within_fifteen_minutes(
    chat: Rig, invoices: Invoices, minutes: int, deleted: list[str]
) -> None:
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    chat.store.offset_seconds += minutes * 60
    await chat.work()
    assert invoices.deleted == deleted
    assert ("could not be started in time" in texts(chat)) == (not deleted)


async def test_approval_not_launched_in_time_is_told_to_all(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    await chat.advance(15 * 60 + 6)
    assert [(action.state, action.reason) for action in await chat.actions()] == [("closed", "expired")]
    await chat.work()
    assert texts(chat).count("could not be started in time, so nothing was done: ") == 1
    edited = [str(part.arguments["text"]) for _, part in chat.platform.sent if part.call == "edit"]
    assert "confirmed, but could not be started in time" in edited[-1] and "Expired" not in edited[-1]
    await chat.handles("ana", "what now?")
    heard = "\n".join(each.content for each in invoices.model.requests[-1].messages if each.role == "event")
    assert "confirmed by the person, but it could not be started in time: it was NOT done." in heard
    assert "not answered" not in heard
    assert invoices.deleted == []


@pytest.mark.parametrize("again", [1, 3])
async def test_one_press_asks_an_expired_question_again(asked: ChatDriver, invoices: Invoices, again: int) -> None:
    before = asked.last.text
    await asked.clock.advance(16 * 60)
    assert "expired" in asked.last.text
    requests = len(invoices.model.requests)
    for _ in range(again):
        await asked.presses("ana", "Ask again")
    assert len(invoices.model.requests) == requests
    assert asked.last.buttons == ["Confirm", "Cancel", "Change"]
    assert asked.last.text.split("OK")[0] == before.split("OK")[0] and asked.last.text != before
    assert sum("Delete invoice" in message.text and "Confirm" in message.buttons for message in asked.messages) == 1
    await asked.presses("ana", "Confirm")
    assert invoices.deleted == ["INV-1"]


async def test_only_the_requester_can_ask_an_expired_question_again(driver: ChatDriver) -> None:
    await driver.says("ana", "delete INV-1", group="team")
    await driver.clock.advance(16 * 60)
    shown = len(driver.messages)
    token = next(m.tokens["Ask again"] for m in reversed(driver.messages) if "Ask again" in m.tokens)
    eva = Person(channel="test", account="bot", user_id="eva")
    place = driver.messages[-1].place
    press = ButtonPress(event_ids=("e",), address=here(place), person=eva, token=token, answer_to="e")
    await driver._take(press)
    assert len(driver.messages) == shown
    await driver.presses("ana", "Ask again")
    assert len(driver.messages) == shown + 1


def counting() -> tuple[list[int], Any]:
    """Return a preview of lines, and a list with the number of lines as the first item."""
    count = [3]

    async def look(invoice_id: str) -> Preview:
        return Preview(text=f"Delete {count[0]} lines of {invoice_id}?")

    return count, look


async def test_drifted_action_is_asked_again_with_a_new_preview(invoices: Invoices) -> None:
    count, look = counting()
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


async def test_action_without_a_preview_is_not_asked_again(invoices: Invoices) -> None:
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
    count, look = counting()
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


@pytest.mark.ledger("PEND-44")
async def test_no_cancels_and_the_model_learns_it(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.says("ana", "no")
    assert asked.last.text.startswith("Not done: ")
    await asked.says("ana", "thanks, what now?")
    told = [message.content for message in invoices.model.requests[-1].messages if message.role == "event"]
    assert any("refused by the person" in text for text in told)
    assert invoices.deleted == []


@pytest.mark.ledger("TEST-07")
async def test_question_expires_and_takes_no_yes(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.clock.advance(901)
    for _ in range(2):
        assert "expired" in asked.last.text
        await asked.says("ana", "yes")
    assert invoices.deleted == []


# ── /stop that was not simply typed ──


async def test_stop_with_a_file_beside_it_stops(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.says("ana", "/stop", attachments=[Attachment(kind="image", ref="1")])
    assert asked.last.text.startswith("Stopped.")
    assert (await asked.engine.context.actions("agent/test:bot:ana")).open == []


async def test_forwarded_stop_is_a_text_for_the_model(asked: ChatDriver, invoices: Invoices) -> None:
    ana = Person(channel="test", account="bot", user_id="ana", name="Ana")
    where = Address(channel="test", account="bot", place="ana")
    forwarded = Message(
        event_ids=("forwarded",), address=where, person=ana, message_id="f", text="", command="stop", forwarded=True
    )
    await asked._take(forwarded)
    assert any("> /stop" in message.text for message in asked.messages)
    assert len((await asked.engine.context.actions("agent/test:bot:ana")).open) == 1


async def test_twenty_questions_in_fifteen_minutes_over_all_places(invoices: Invoices) -> None:
    """Defect 17: a limit of five questions a conversation allowed twelve in twelve groups."""
    async with ChatDriver(invoices.bot()) as chat:
        for number in range(21):
            await chat.says("ana", f"delete INV-{number}", group=f"g{number}")
        assert sum(bool(message.buttons) for message in chat.messages) == 20
        told = [message.content for message in invoices.model.requests[-1].messages if message.role == "tool"]
        assert "this person was asked too often in the last minutes" in told[-1]
        await chat.says("ben", "delete INV-1", group="g1")
        assert sum(bool(message.buttons) for message in chat.messages) == 21, "another person is not held back"
        await chat.clock.advance(46)
        await chat.says("ana", "delete INV-30", group="g30")
        assert sum(bool(message.buttons) for message in chat.messages) == 22
