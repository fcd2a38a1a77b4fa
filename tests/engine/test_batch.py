"""A turn takes joined messages in order: turns of a conversation run singly, conversations in parallel."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Attachment, Person, Reaction
from gateway import Agent, ChannelAgent, Confirm, ToolContext, tool
from gateway.agent import AgentConfig
from gateway.engine.turns.interrupts import interrupt
from gateway.memory import HISTORY
from gateway.providers.base import ProviderError
from gateway.store.types import FOLDED_AFTER_SECONDS, Incoming
from gateway.testing import ChatDriver, RecordingObserver, ScriptedProvider, ToolCall
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, Worker, here, message, rig, until, user_lines


@pytest.fixture
def script() -> ScriptedProvider:
    return ScriptedProvider([f"answer {number}" for number in range(1, 10)])


@pytest.fixture
async def batch(script: ScriptedProvider, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path) as chat:
        yield chat


async def test_messages_of_one_person_that_wait_are_one_turn(batch: Rig, script: ScriptedProvider) -> None:
    for text in ("one", "two", "three"):
        await batch.says("ana", text)
    await batch.turns()
    assert user_lines(script) == ["one", "two", "three"]
    assert batch.platform.texts() == ["answer 1"]


async def test_messages_are_not_joined_across_another_person(batch: Rig, script: ScriptedProvider) -> None:
    for person, text in (("ana", "one"), ("ana", "two"), ("bob", "three"), ("ana", "four")):
        await batch.says(person, text, place="#team")
    outcomes = [await batch.worker.turn() for _ in range(3)]
    assert all(outcomes) and len(script.requests) == 3
    assert user_lines(script) == ["one", "two", "three", "four"]
    speakers = [each.speaker for each in script.requests[-1].messages if each.role == "user"]
    assert speakers == ["Ana", "Ana", "Bob", "Ana"]


@pytest.mark.ledger("PYG-05")
async def test_each_message_that_waits_for_no_other_is_one_turn(script: ScriptedProvider, tmp_path: Path) -> None:
    watch = RecordingObserver()
    bot = ChannelAgent(Agent(provider=script, config=AgentConfig(observers=(watch,))))
    async with rig(bot, tmp_path) as chat:
        for person, text in (("ana", "one"), ("bob", "two"), ("ana", "three")):
            await chat.says(person, text, place="#team")
        await chat.turns()
        await chat.hears("ana", "four", place="#team")
    assert [request.messages[-1].content for request in script.requests] == ["one", "two", "three", "four"]
    begun, ended = ([fields for name, fields in watch.events if name == f"turn_{end}"] for end in ("start", "end"))
    assert [each["run_id"] for each in begun] == [each["run_id"] for each in ended]
    assert len({each["run_id"] for each in begun}) == 4
    assert len({event_id for each in begun for event_id in each["event_ids"]}) == 4
    assert [len(each["event_ids"]) for each in begun] == [1, 1, 1, 1]
    assert chat.platform.texts("#team") == [f"answer {number}" for number in range(1, 5)]


async def test_turn_has_the_person_of_its_message(tmp_path: Path) -> None:
    people: list[str] = []

    def instructions(ctx: ToolContext) -> str:
        people.append(ctx.person)
        return ""

    bot = ChannelAgent(Agent(provider=ScriptedProvider(["a", "b"]), instructions=instructions))
    async with rig(bot, tmp_path) as chat:
        await chat.says("ana", "one", place="#team")
        await chat.hears("bob", "two", place="#team")
    assert people == ["test:bot:ana", "test:bot:bob"]


@pytest.mark.parametrize("word", ["yes", "no", "sim"])
async def test_messages_are_not_joined_across_a_yes_or_a_no(batch: Rig, script: ScriptedProvider, word: str) -> None:
    for text in ("one", word, "two", "three"):
        await batch.says("ana", text)
    await batch.turns()
    new = [request.messages[-1].content for request in script.requests]
    assert (new, user_lines(script)) == (["one", word, "three"], ["one", word, "two", "three"])


async def test_messages_are_not_joined_across_a_command(batch: Rig, script: ScriptedProvider) -> None:
    for text in ("one", "/pending", "two"):
        await batch.says("ana", text)
    await batch.turns()
    assert batch.platform.texts() == ["answer 1", "Nothing is waiting for your answer.", "answer 2"]


@pytest.mark.ledger("PYG-07")
async def test_messages_during_a_turn_make_the_next_turn() -> None:
    hold = asyncio.Event()
    script = ScriptedProvider([hold, "first", "second"])
    async with ChatDriver(ChannelAgent(Agent()), provider=script) as chat:
        first = asyncio.create_task(chat.says("ana", "one"))
        await until(lambda: script.requests)
        more = [asyncio.create_task(chat.says("ana", text)) for text in ("two", "three")]
        while (await chat.engine.context.store.stats()).waiting < 3:
            await asyncio.sleep(0)
        assert len(script.requests) == 1
        hold.set()
        await asyncio.gather(first, *more)
        assert [each.text for each in chat.messages] == ["first", "second"]
        assert user_lines(script) == ["one", "two", "three"]


# ── edits ──


async def test_an_edit_replaces_the_text_of_an_unread_message(batch: Rig, script: ScriptedProvider) -> None:
    await batch.says("ana", "send INV-1", message_id="m1")
    await batch.edits("ana", "m1", "send INV-2")
    await batch.turns()
    assert user_lines(script) == ["send INV-2"]
    assert len(script.requests) == 1


async def test_edit_counts_when_it_waits_behind_the_next_turns_message(batch: Rig, script: ScriptedProvider) -> None:
    await batch.says("ana", "send INV-1", message_id="m1", place="#team")
    await batch.says("bob", "hello", message_id="m2", place="#team")
    await batch.edits("ana", "m1", "send INV-2", place="#team")
    await batch.worker.turn()
    assert user_lines(script) == ["send INV-2"]
    await batch.turns()
    assert user_lines(script) == ["send INV-2", "hello"]


async def test_the_edit_of_a_read_message_is_history(batch: Rig, script: ScriptedProvider) -> None:
    await batch.hears("ana", "send INV-1", message_id="m1")
    await batch.edits("ana", "m1", "send INV-2")
    assert await batch.ready() == 0
    await batch.hears("ana", "well?")
    assert user_lines(script) == ["send INV-1", "well?"]
    noted = [each.content for each in script.requests[-1].messages if each.role == "event"]
    assert noted == ["The person edited an earlier message: send INV-2"]


@pytest.mark.parametrize(("before", "after"), [("yes", "list invoices"), ("list invoices", "yes"), ("yes", "no")])
async def test_an_edit_to_or_of_an_answer_never_decides(chat: Rig, before: str, after: str, invoices: Invoices) -> None:
    await chat.hears("ana", "delete INV-1")
    await chat.says("ana", before, message_id="m1")
    await chat.edits("ana", "m1", after)
    await chat.turns()
    assert invoices.deleted == []
    assert (await chat.store.stats()).ready == 0
    assert re.search("Nothing has been done yet|need the code", chat.platform.new_texts()[-1])


async def test_yes_taken_back_by_a_later_edit_does_not_count(chat: Rig, invoices: Invoices) -> None:
    await chat.hears("ana", "delete INV-1")
    await chat.says("ana", "yes", message_id="m1")
    await chat.says("ana", "hello", message_id="m2")
    await chat.edits("ana", "m1", "not yet, wait")
    await chat.turns()
    assert invoices.deleted == []
    assert any("I need the code" in text for text in chat.platform.texts())


async def test_yes_after_other_words_of_its_batch_does_not_count(chat: Rig, invoices: Invoices) -> None:
    await chat.hears("ana", "delete INV-1")
    await chat.take(message("ana", "by the way"), message("ana", "yes"))
    await chat.turns()
    assert invoices.deleted == []
    assert "I need the code" in chat.platform.new_texts()[-1]


async def test_an_event_of_another_release_is_put_aside_and_told(batch: Rig, script: ScriptedProvider) -> None:
    conversation = batch.worker.context.conversation(here("ana"))
    wink = Incoming(conversation=conversation, event_ids=("wink",), body={"kind": "Wink"})
    await batch.store.accept([wink])
    await batch.hears("ana", "two")
    assert user_lines(script) == ["two"]
    assert len(await batch.store.dead_letters()) == 1
    assert batch.platform.texts()[0].startswith("Something went wrong on my side. Reference: ")


WINDOW = 1000.0


def bot(script: ScriptedProvider, **options: Any) -> ChannelAgent:
    return ChannelAgent(Agent(provider=script), collect_seconds=WINDOW, **options)


@pytest.fixture
async def burst(tmp_path: Path, script: ScriptedProvider) -> AsyncIterator[Rig]:
    async with rig(bot(script), tmp_path) as chat:
        yield chat


@pytest.mark.both_stores
async def test_burst_is_one_turn_and_each_message_restarts_the_wait(burst: Rig, script: ScriptedProvider) -> None:
    for text in ("one", "two", "three"):
        await burst.hears("ana", text)
        await burst.later(WINDOW - 200)
    assert script.requests == []
    stats = await burst.store.stats()
    assert (stats.leased, stats.parked, stats.waiting) == (0, 1, 3), "nobody holds it meanwhile"
    await burst.later(201)
    assert (user_lines(script), len(script.requests)) == (["one", "two", "three"], 1)
    assert burst.platform.texts() == ["answer 1"]


@pytest.mark.both_stores
async def test_a_steady_stream_is_answered_all_the_same(burst: Rig, script: ScriptedProvider) -> None:
    seconds = 0.0
    while not script.requests:
        await burst.hears("ana", f"at {seconds}")
        seconds += WINDOW - 200
        await burst.later(WINDOW - 200)
    assert 5 * WINDOW - 200 <= seconds < 6 * WINDOW


@pytest.mark.parametrize("answer", ["yes", "No!", "sim", "OK K7P2"])
async def test_commands_and_answers_end_the_collecting_at_once(
    burst: Rig, script: ScriptedProvider, answer: str
) -> None:
    await burst.hears("ana", answer)
    alone = len(burst.platform.texts())
    await burst.hears("ana", "hello")
    assert len(burst.platform.texts()) == alone == 1
    await burst.hears("ana", answer)
    assert len(burst.platform.texts()) == 3
    assert (await burst.store.stats()).waiting == 0


async def test_help_command_overtakes_the_messages_being_collected(burst: Rig, script: ScriptedProvider) -> None:
    await burst.says("ana", "hello")
    await burst.hears("ana", "/help")
    assert (len(burst.platform.texts()), script.requests) == (1, [])
    await burst.later(WINDOW)
    assert burst.platform.texts()[1:] == ["answer 1"]


async def test_press_does_not_wait_for_the_collecting(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(collect_seconds=WINDOW)) as chat:
        await chat.says("ana", "delete INV-1")
        assert chat.messages == []
        await chat.clock.advance(WINDOW + 1)
        await chat.says("ana", "by the way")
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]
        assert len(invoices.model.requests) == 1
        await chat.clock.advance(WINDOW + 1)
        assert any(message.text == "You said: by the way" for message in chat.messages)


async def test_yes_right_after_the_question_counts_without_a_wait(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(collect_seconds=WINDOW), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.later(WINDOW + 1)
        await chat.says("ana", "yes")
        await chat.worker.turn()
        assert (await chat.store.stats()).waiting == 0
        assert len(invoices.model.requests) == 1


async def test_message_during_a_turn_is_not_collected_after_it(burst: Rig, script: ScriptedProvider) -> None:
    await burst.hears("ana", "one")
    await burst.advance(WINDOW + 1)
    lease = await burst.worker.lease("turn")
    await burst.says("ana", "two")
    await burst.says("ana", "/pending")
    await burst.worker.turn_of(lease)
    await burst.turns()
    assert burst.platform.texts()[:2] == ["answer 1", "answer 2"]
    await burst.hears("ana", "three")
    assert len(script.requests) == 2


async def test_message_of_another_person_does_not_delay_the_first(burst: Rig, script: ScriptedProvider) -> None:
    await burst.hears("ana", "one", place="#team")
    await burst.says("bob", "two", place="#team")
    await burst.later(WINDOW + 1)
    assert [len(request.messages) for request in script.requests] == [1, 3]


@pytest.mark.both_stores
async def test_another_process_takes_the_burst_up(burst: Rig, script: ScriptedProvider) -> None:
    await burst.says("ana", "one")
    assert await burst.another().turn() is None
    await burst.says("ana", "two")
    await burst.advance(WINDOW + 1)
    assert await burst.another().turn() is not None
    assert user_lines(script) == ["one", "two"]


@pytest.mark.both_stores
async def test_a_turn_that_failed_does_not_wait_again(tmp_path: Path) -> None:
    script = ScriptedProvider([ProviderError("openai", "503", retryable=False), "Here I am."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.says("ana", "one")
        await chat.later(WINDOW + 1)
        await chat.says("ana", "two")
        await chat.later(6)
        assert user_lines(script) == ["one", "two"]


async def test_ask_channel_does_not_wait_to_collect(script: ScriptedProvider) -> None:
    async with bot(script) as own:
        assert (await own.ask_channel("ana", "hello")).content == "answer 1"


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_invalid_collect_seconds_are_refused(script: ScriptedProvider, seconds: float) -> None:
    with pytest.raises(ValueError, match="collect_seconds"):
        ChannelAgent(Agent(provider=script), collect_seconds=seconds)


@pytest.mark.both_stores
async def test_an_album_is_one_message(tmp_path: Path) -> None:
    script = ScriptedProvider(["Nice."])
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path) as chat:
        for number in range(3):
            photo = Attachment(kind="image", ref=f"p{number}", filename=f"{number}.jpg")
            await chat.hears("ana", "our trip" if not number else "", attachments=(photo,), album="a1")
        assert script.requests == []
        await chat.later(1.1)
        assert user_lines(script) == ["our trip\n[image: 0.jpg]", "[image: 1.jpg]", "[image: 2.jpg]"]
        assert len(script.requests) == 1


def interruptible(script: ScriptedProvider, tools: Any = ()) -> ChannelAgent:
    return ChannelAgent(Agent(tools, provider=script), when_busy="interrupt")


def look(worker: Worker) -> None:
    """Bring on the next beat."""
    worker.context.nudge("turn", next(lane for kind, lane in worker.context.held if kind == "turn"))


async def hears_nothing(chat: Rig) -> None:
    """Let a whole heartbeat pass, so that every waiting signal is heard."""
    for _ in range(2):  # the second has begun: the first has ended
        beats = chat.wire.calls["renew"]
        while chat.wire.calls["renew"] == beats:
            look(chat.worker)
            await asyncio.sleep(0.001)


async def idle(chat: Rig) -> None:
    """Wait for the end of background tasks, of a signal being sent for instance."""
    await chat.worker.context.tasks.ended()


async def test_interrupting_message_is_answered_with_the_one_before() -> None:
    hold = asyncio.Event()
    script = ScriptedProvider([hold, "both"])
    async with ChatDriver(interruptible(script)) as chat:
        first = asyncio.create_task(chat.says("ana", "one"))
        await until(lambda: script.requests)
        await chat.says("ana", "two")
        await first
        assert [each.text for each in chat.messages] == ["both"]
        assert user_lines(script) == ["one", "two"]


async def test_message_without_interrupt_waits_for_the_end_of_the_turn(chat: Rig, invoices: Invoices) -> None:
    running = await chat.waits()
    await chat.says("ana", "two")
    await idle(chat)
    assert chat.wire.calls["commit"] == 0, "nobody is told"
    invoices.model.let_go.set()
    await running
    await chat.turns()
    assert chat.platform.texts() == ["You said: wait", "You said: two"]


async def test_message_taken_by_another_process_interrupts_the_turn(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        other = chat.another()
        await chat.says("ana", "wait")
        running = asyncio.create_task(other.turn())
        await invoices.model.waiting.wait()
        await chat.says("ana", "two")
        await idle(chat)
        look(other)
        outcome = await running
        assert outcome is not None and outcome.stop_reason == "cancelled"
        await chat.turns()
        assert chat.platform.texts() == ["You said: two"]


async def test_interrupt_needs_an_ordinary_message_of_the_same_person(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        running = await chat.waits(place="#team")
        await chat.says("bob", "hello", place="#team")
        for text in ("/pending", "yes", "no"):
            await chat.says("ana", text, place="#team")
        await idle(chat)
        await hears_nothing(chat)
        invoices.model.let_go.set()
        outcome = await running
        assert outcome is not None and outcome.stop_reason == "answered"
        await chat.turns()
        assert chat.platform.texts("#team")[:2] == ["You said: wait", "You said: hello"]


async def test_turns_own_message_does_not_interrupt_it(tmp_path: Path, invoices: Invoices) -> None:
    """Another process may have taken up the message before the signal was sent."""
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        hello = message("ana", "wait")
        await chat.take(hello)
        await idle(chat)
        running = asyncio.create_task(chat.worker.turn())
        await invoices.model.waiting.wait()
        lane = chat.worker.context.conversation(hello.address)
        await interrupt(chat.worker.context, hello, lane)
        await hears_nothing(chat)
        invoices.model.let_go.set()
        outcome = await running
        assert outcome is not None and outcome.stop_reason == "answered"


async def test_running_tool_is_not_interrupted_and_its_result_is_kept(tmp_path: Path) -> None:
    paying = asyncio.Event()
    paid: list[str] = []

    @tool
    async def pay(invoice_id: str, ctx: ToolContext) -> str:
        """Pay."""
        paying.set()
        await until(lambda: ctx.cancelled)
        paid.append(invoice_id)
        return f"{invoice_id} is paid"

    calls = [ToolCall("pay", {"invoice_id": "INV-1"}), ToolCall("pay", {"invoice_id": "INV-2"})]
    script = ScriptedProvider([calls, "INV-1 is paid, INV-2 is not."])
    one_by_one = AgentConfig(parallel_tool_execution=False)
    own = ChannelAgent(Agent([pay], provider=script, config=one_by_one), when_busy="interrupt")
    async with rig(own, tmp_path) as chat:
        await chat.says("ana", "pay both")
        running = asyncio.create_task(chat.worker.turn())
        await paying.wait()
        await chat.says("ana", "only the first!")
        await running
        await chat.turns()
        assert paid == ["INV-1"]
        assert chat.platform.texts() == ["INV-1 is paid, INV-2 is not."]
        results = [each.content for each in script.requests[-1].messages if each.role == "tool"]
        assert results == ["INV-1 is paid", "Tool 'pay' was not run: the person has ended this turn."]
        assert user_lines(script) == ["pay both", "only the first!"]


async def test_interrupt_keeps_the_question_already_asked(tmp_path: Path) -> None:
    """An interrupt ends a turn, and is no /stop."""
    started = asyncio.Event()

    async def preview(invoice_id: str, ctx: ToolContext) -> str:
        started.set()
        await until(lambda: ctx.cancelled)
        return f"Delete {invoice_id}?"

    @tool(confirm=preview)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        raise AssertionError("never")

    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"}), "Fine."])
    async with rig(interruptible(script, [delete_invoice]), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        running = asyncio.create_task(chat.worker.turn())
        await started.wait()
        await chat.says("ana", "please")
        await running
        await chat.turns()
        assert [bool(part.buttons) for _, part in chat.platform.sent] == [True, False, True, False]
        assert "Fine." in chat.platform.texts()


async def test_death_during_an_interrupt_loses_neither_message(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        await chat.says("ana", "one")
        await chat.worker.lease("turn", lease_seconds=0.0)
        await chat.says("ana", "two")
        await idle(chat)
        await chat.turns()
        assert user_lines_of(invoices) == ["one", "two"]


def user_lines_of(invoices: Invoices) -> list[str]:
    return [each.content for each in invoices.model.requests[-1].messages if each.role == "user"]


async def test_stop_ends_a_turn_that_goes_on_after_an_outcome(invoices: Invoices) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"}), asyncio.Event()])
    resumed = Confirm("Delete {invoice_id}?", after="resume")
    async with ChatDriver(invoices.bot(confirm=resumed), provider=script) as chat:
        await chat.says("ana", "delete INV-1, then mail Bob")
        pressing = asyncio.create_task(chat.presses("ana", "Confirm"))
        await until(lambda: len(script.requests) >= 2)
        await chat.says("ana", "/stop")
        await pressing
        assert chat.last.text == say("stopped", "en")


def test_unknown_when_busy_is_refused() -> None:
    with pytest.raises(ValueError, match="when_busy"):
        ChannelAgent(Agent(), when_busy="steer")  # type: ignore[arg-type]


ANA = Person(channel="test", account="bot", user_id="ana", name="Ana")
_numbers = itertools.count(1)


async def settled(chat: Rig, place: str, invoice: str = "INV-1") -> None:
    """Have Ana ask, confirm, and go away."""
    await chat.handles("ana", f"delete {invoice}", place=place)
    action = next(each for each in await open_in(chat, place))
    await chat.handles("ana", f"OK {action}", place=place)


async def open_in(chat: Rig, place: str) -> list[str]:
    found = await chat.worker.context.actions(chat.worker.context.conversation(here(place)))
    return [action.code for action in found.by_id.values() if action.open]


async def edits(chat: Rig, number: int, text: str, place: str = "ana") -> None:
    await chat.edits("ana", f"m{number}", text, place=place)


def notes(invoices: Invoices) -> list[str]:
    """Return the notes of the last request to the model."""
    return [message.content for message in invoices.model.requests[-1].messages if message.role == "event"]


async def fold(chat: Rig) -> None:
    await chat.advance(FOLDED_AFTER_SECONDS + 1)
    await chat.work()


async def test_outcomes_without_a_later_message_are_folded_and_told(chat: Rig, invoices: Invoices) -> None:
    for number in range(3):
        await settled(chat, f"#thread {number}", f"INV-{number}")
    assert invoices.deleted == ["INV-0", "INV-1", "INV-2"]
    assert (await chat.store.stats()).waiting == 0
    asked, sent = len(invoices.model.requests), len(chat.platform.sent)
    await fold(chat)
    assert (len(invoices.model.requests), len(chat.platform.sent)) == (asked, sent), "a fold says nothing"
    assert (await chat.store.stats()).parked == 0
    await chat.handles("ana", "what now?", place="#thread 1")
    (told,) = notes(invoices)
    assert "INV-1" in told and "confirmed by the person and done" in told


async def test_folded_note_is_told_once(chat: Rig, invoices: Invoices) -> None:
    await settled(chat, "ana")
    await fold(chat)
    for number in range(3):
        await chat.handles("ana", f"and {number}?")
    assert len(notes(invoices)) == 1


async def test_notes_are_folded_onto_earlier_notes(chat: Rig, invoices: Invoices) -> None:
    for number in range(3):
        await edits(chat, number, f"text {number}")
        await fold(chat)
    await edits(chat, 3, "text 3")
    await chat.handles("ana", "what now?")
    (told,) = notes(invoices)
    assert [line.rpartition(": ")[2] for line in told.split("\n")] == ["text 0", "text 1", "text 2", "text 3"]


@pytest.mark.parametrize("folded", [True, False])
async def test_new_command_forgets_the_notes(chat: Rig, invoices: Invoices, folded: bool) -> None:
    await settled(chat, "ana")
    if folded:
        await fold(chat)
    await chat.handles("ana", "/new", "hello")
    assert notes(invoices) == []


async def test_no_number_of_edits_pushes_words_out_of_the_window(chat: Rig, invoices: Invoices) -> None:
    await chat.handles("ana", "my name is Zora")
    for number in range(HISTORY // 2 - 1):
        await chat.handles("ana", f"word {number}")
    for number in range(60):
        await edits(chat, number, f"text {number}")
        if number % 10 == 9:
            await fold(chat)
    await chat.handles("ana", "who am I?")
    said = [message.content for message in invoices.model.requests[-1].messages if message.role == "user"]
    assert said[0] == "my name is Zora"
    (told,) = notes(invoices)
    assert told.split("\n")[-1].endswith("text 59")
    assert len(told.split("\n")) <= 20


async def test_a_step_of_a_live_location_is_no_event(chat: Rig) -> None:
    for number in range(50):
        await edits(chat, number % 2, "")
    assert chat.wire.calls["accept"] == 0


async def test_reaction_is_not_stored(chat: Rig) -> None:
    address = Address(channel="test", account="bot", place="ana")
    await chat.take(Reaction(event_ids=("r",), address=address, person=ANA, message_id="1", emoji="+1"))
    assert chat.wire.calls["accept"] == 0


async def test_edit_to_the_same_text_is_no_note(chat: Rig, invoices: Invoices) -> None:
    await chat.handles("ana", 'the "first"\nof them')
    await edits(chat, 1, 'the "first"\nof them')
    await chat.handles("ana", "and?")
    assert notes(invoices) == []


async def test_of_edits_of_one_message_only_the_last_waits(chat: Rig, invoices: Invoices) -> None:
    for number in range(20):
        await edits(chat, 1, f"text {number}")
    await chat.handles("ana", "and?")
    assert notes(invoices) == ["The person edited an earlier message: text 19"]


async def test_a_turn_that_runs_meanwhile_ends_all_the_same(chat: Rig, invoices: Invoices) -> None:
    """The turn was handed the earlier edit, and takes only the earlier edit out."""
    await edits(chat, 1, "first")
    await chat.says("ana", "and?")
    lease = await chat.worker.lease("turn")
    await edits(chat, 1, "second")
    await chat.worker.turn_of(lease)
    await chat.handles("ana", "and now?")
    assert [note.rpartition(": ")[2] for note in notes(invoices)] == ["first", "second"]


async def test_a_long_note_is_cut(chat: Rig, invoices: Invoices) -> None:
    await edits(chat, 1, "x" * 50_000)
    await chat.handles("ana", "and?")
    (told,) = notes(invoices)
    assert len(told) == 1_001 and told.endswith("…")


async def test_a_fold_needs_no_channel(chat: Rig) -> None:
    await settled(chat, "ana")
    chat.worker.context.channels = {}
    await fold(chat)
    assert (await chat.store.stats()).parked == 0
    assert [action.state for action in await chat.actions()] == ["done"]


async def test_folded_notes_end_with_the_transcript(chat: Rig, invoices: Invoices) -> None:
    await edits(chat, 1, "a secret")
    await fold(chat)
    assert await chat.store.scan("notes/")
    await chat.advance(chat.worker.context.rules.retention.transcript_seconds + 1)
    assert not await chat.store.scan("notes/")
