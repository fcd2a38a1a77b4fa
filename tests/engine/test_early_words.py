"""A yes or no right behind a question is judged by the platform's order, in every step of the arrival.

A question is sent, then shown, then the receipt is committed. A word is accepted, then leased, then judged. A test
holds a step with an event and has Ana write there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from channels import Address, Ambiguous, DeliveryReport, Message, Part, Receipt
from gateway import Agent, ChannelAgent, Confirm, tool
from gateway.engine.turns import bare_replies, live
from gateway.providers.base import ToolCall as Call
from gateway.testing.doubles import FaultyStore
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, Worker, code_of, here, killed, rig, until
from tests.engine.streaming import Board, Typist
from tests.engine.test_tampered_records import CHAT

pytestmark = pytest.mark.both_stores


class Phone(Platform):
    """A chat with one count of messages for both sides, as on Telegram. Each step of a send can be held."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(**capabilities)
        self._numbers = itertools.count(1)
        self.may_show, self.may_answer = asyncio.Event(), asyncio.Event()
        """A send shows the message after the first event, and is answered after the second. Both are set at first."""
        self.may_show.set()
        self.may_answer.set()
        self.fails: list[Exception] = []
        """The answers of the next sends; the messages are shown all the same."""

    def number(self) -> str:
        """Return the number of Ana's next message."""
        return str(next(self._numbers))

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return int(message.message_id or 0) > int(receipt.message_id or 0)

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        self.sending.set()
        await self.may_show.wait()
        number = self.number()
        self.sent.append((address.place, part))
        await self.may_answer.wait()
        if self.fails:
            raise self.fails.pop(0)
        return Receipt(message_id=number)


@dataclass
class Story:
    """Ana is asked about an invoice, and answers while a step is held."""

    chat: Rig
    phone: Phone
    invoices: Invoices
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    async def begins(self, text: str = "delete INV-1") -> None:
        """Have the question sent, up to the held step."""
        await self.writes(text)
        await self.chat.worker.turn()
        self.starts(self.chat.worker.deliver())
        if self.phone.may_show.is_set():
            await until(lambda: self.phone.sent)
        else:
            await self.phone.sending.wait()
        if self.phone.may_answer.is_set() and self.phone.may_show.is_set():
            await self.ended()

    def starts(self, work: Awaitable[Any]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def ended(self) -> None:
        await asyncio.gather(*self.tasks)
        self.tasks.clear()

    async def writes(self, text: str) -> None:
        await self.chat.says("ana", text, message_id=self.phone.number())

    async def answers(self, *words: str, worker: Worker | None = None) -> None:
        """Write each word, and begin to judge the first: the judgement looks at the sends under way, and waits."""
        for word in words:
            await self.writes(word)
        looks = self.chat.wire.calls["outbox"]
        self.starts((worker or self.chat.worker).turn())
        await until(lambda: self.chat.wire.calls["outbox"] > looks)

    async def goes_on(self) -> None:
        """Let all held steps go on, and do all possible work."""
        self.phone.may_show.set()
        self.phone.may_answer.set()
        await self.ended()
        await self.chat.work()

    async def end(self) -> str:
        """Return the end of the question: "done", "refused" or "open"."""
        (action,) = await self.chat.actions()
        assert self.invoices.deleted == (["INV-1"] if action.state == "done" else [])
        return "open" if action.open else action.reason or action.state

    async def code_counts(self) -> bool:
        await self.writes(f"OK {code_of(self.phone.texts()[0])}")
        await self.chat.work()
        return self.invoices.deleted == ["INV-1"]


@pytest.fixture(params=["ordered"])
async def story(request: pytest.FixtureRequest, tmp_path: Path, invoices: Invoices) -> AsyncIterator[Story]:
    phone = Phone(bare_yes=request.param, reports=request.param == "reported")
    async with rig(invoices.bot(), tmp_path, phone) as chat:
        yield Story(chat, phone, invoices)


both_orders = pytest.mark.parametrize("story", ["ordered", "reported"], indirect=True)
WORDS = [("yes",), ("no",), ("no", "yes")]


# ── between the send and its showing: the word is older than the question ──


@both_orders
@pytest.mark.parametrize("words", WORDS)
async def test_word_before_the_question_decides_no_action(story: Story, words: tuple[str, ...]) -> None:
    story.phone.may_show.clear()
    await story.begins()
    await story.answers(*words)
    await story.goes_on()
    assert await story.end() == "open"
    assert "To be safe I need the code" in story.phone.new_texts()[-1]
    assert await story.code_counts()


@pytest.mark.parametrize("first", ["yes", "no"])
async def test_yes_behind_an_early_word_waits_for_the_next_showing(story: Story, first: str) -> None:
    """The yes is written under the question, before the first word has the question shown again."""
    story.phone.may_show.clear()
    await story.begins()
    await story.writes(first)
    story.phone.may_show.set()
    await story.ended()
    await story.writes("yes")
    await story.goes_on()
    assert await story.end() == "open"
    await story.writes("yes")
    await story.goes_on()
    assert await story.end() == "done"


@pytest.mark.parametrize(("first", "end"), [("yes", "done"), ("no", "open")])
async def test_no_before_the_question_leaves_it_to_its_code(story: Story, first: str, end: str) -> None:
    await story.writes("delete INV-1")
    await story.writes(first)
    await story.chat.worker.turn()
    await story.chat.worker.deliver()
    await story.writes("yes")
    await story.goes_on()
    assert await story.end() == end
    assert await story.code_counts()


# ── between the showing and the receipt ──


@pytest.mark.parametrize(("words", "end"), [(("yes",), "done"), (("no",), "refused"), (("no", "yes"), "refused")])
async def test_word_behind_the_question_waits_for_its_receipt(story: Story, words: tuple[str, ...], end: str) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    await story.answers(*words)
    turn, looks = story.tasks[-1], story.chat.wire.calls["outbox"]
    await until(lambda: turn.done() or story.chat.wire.calls["outbox"] > looks + 2)
    assert not turn.done(), "it waits"
    await story.goes_on()
    assert await story.end() == end


@pytest.mark.parametrize("story", ["reported"], indirect=True)
@pytest.mark.parametrize("words", WORDS)
async def test_early_word_without_an_order_decides_no_action(story: Story, words: tuple[str, ...]) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    await story.answers(*words)
    await story.goes_on()
    assert await story.end() == "open"
    assert await story.code_counts()


@pytest.mark.parametrize("story", ["reported"], indirect=True)
@pytest.mark.parametrize(("first", "end"), [("what is it?", "open"), ("no", "open"), (None, "done")])
async def test_reported_yes_counts_unless_an_early_word_came(story: Story, first: str | None, end: str) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    if first is not None:
        await story.writes(first)
    story.phone.may_answer.set()
    await story.ended()
    await story.chat.take(
        DeliveryReport(event_ids=("r",), address=here("ana"), person=None, message_id="2", status="delivered")
    )
    story.chat.store.offset_seconds += 4
    await story.writes("yes")
    await story.goes_on()
    assert await story.end() == end


async def test_other_words_before_the_receipt_end_the_bare_yes(story: Story) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    await story.writes("wait a moment")
    story.phone.may_answer.set()
    await story.ended()
    await story.writes("yes")
    await story.goes_on()
    assert await story.end() == "open"


# ── after the receipt: accepted, leased, judged ──


@pytest.mark.parametrize(("words", "end"), [(("yes",), "done"), (("no",), "refused"), (("no", "yes"), "refused")])
async def test_word_that_is_judged_late_counts_as_it_was_written(
    story: Story, words: tuple[str, ...], end: str
) -> None:
    """A notice is sent between the acceptance and the lease."""
    await story.begins()
    for word in words:
        await story.writes(word)
    await story.chat.notify("The office closes at six.")
    await story.chat.worker.deliver()
    await story.goes_on()
    assert await story.end() == end


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_receipt_of_a_notice_comes_while_a_word_is_judged(story: Story, word: str) -> None:
    """The receipt of the notice is committed between the reads of the actions and of the outbox."""
    await story.begins()
    await story.chat.notify("The office closes at six.")
    story.phone.may_answer.clear()
    story.starts(story.chat.worker.deliver())
    await until(lambda: len(story.phone.sent) == 2)
    await story.writes(word)

    async def arrives() -> None:
        story.phone.may_answer.set()
        await story.ended()

    wire = FaultyStore(story.chat.store)
    wire.hooks["get answered"] = lambda: arrives() if wire.calls["outbox"] == 1 and story.tasks else None
    await Worker(story.chat.bot, wire, {Platform.name: story.phone}, story.chat.files).turn()
    assert not story.tasks, "its receipt came in between"
    await story.goes_on()
    assert await story.end() == "open"
    assert await story.code_counts()


# ── a receipt that does not come ──


@both_orders
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.usefixtures("nobody_waits_long")
async def test_word_is_judged_without_a_receipt_that_never_comes(story: Story, words: tuple[str, ...]) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    await story.answers(*words)
    turn = story.tasks.pop()
    await turn
    assert await story.end() == "open"
    await story.goes_on()
    assert await story.end() == "open", "the receipt that comes at last makes no answer of it"
    assert await story.code_counts()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the waits for a receipt, in seconds; the waits take no time."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    loop = SimpleNamespace(time=lambda: sum(slept))
    monkeypatch.setattr(bare_replies, "asyncio", SimpleNamespace(sleep=sleep, get_running_loop=lambda: loop))
    return slept


async def test_word_waits_five_seconds_at_most_for_a_receipt(story: Story, slept: list[float]) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    await story.writes("yes")
    await story.chat.worker.turn()
    assert 4.9 < sum(slept) < 5.1
    await story.goes_on()
    assert await story.end() == "open"


async def test_word_waits_for_no_question_that_was_queued_after_it(story: Story, slept: list[float]) -> None:
    """The first word has the question shown again; the second word was written before."""
    story.phone.may_show.clear()
    await story.begins()
    await story.writes("yes")
    await story.writes("yes")
    story.phone.may_show.set()
    await story.ended()
    await story.chat.worker.turn()
    await story.chat.worker.turn()
    assert slept == []
    await story.goes_on()
    assert await story.end() == "open"


# ── a send without an answer, and another process ──


@pytest.mark.parametrize("words", WORDS)
async def test_word_between_two_copies_decides_no_action(story: Story, words: tuple[str, ...]) -> None:
    story.phone.fails = [Ambiguous("no answer")]
    await story.begins()
    await story.answers(*words)
    story.chat.store.offset_seconds += 2
    await story.chat.worker.deliver()
    await story.goes_on()
    assert await story.end() == "open"
    assert await story.code_counts()


@pytest.mark.parametrize(("first", "end"), [(None, "done"), ("no", "open")])
async def test_yes_under_the_second_copy_counts_without_a_no(story: Story, first: str | None, end: str) -> None:
    story.phone.fails = [Ambiguous("no answer")]
    await story.begins()
    if first is not None:
        await story.answers(first)
    story.chat.store.offset_seconds += 2
    await story.chat.worker.deliver()
    await story.writes("yes")
    await story.goes_on()
    assert await story.end() == end


@pytest.mark.parametrize("words", WORDS)
async def test_process_that_stands_still_between_send_and_receipt(story: Story, words: tuple[str, ...]) -> None:
    """Another process takes the outbox over and sends the question again, behind the word."""
    await story.writes("delete INV-1")
    await story.chat.worker.turn()
    lease = await story.chat.worker.lease("out", lease_seconds=0.0)
    story.phone.may_answer.clear()
    story.starts(story.chat.worker.delivery.run(lease))
    await until(lambda: story.phone.sent)
    other = story.chat.another()
    await story.answers(*words, worker=other)
    await story.chat.store.renew(lease, lease_seconds=0.0)  # it has not been renewed in time
    taken_over = await other.lease("out")
    story.phone.may_answer.set()
    await other.delivery.run(taken_over)
    await story.goes_on()
    assert await story.end() == "open"
    assert await story.code_counts()


@pytest.mark.parametrize(("word", "end"), [("yes", "done"), ("no", "refused")])
async def test_another_process_judges_by_the_receipt_of_this_one(story: Story, word: str, end: str) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    await story.answers(word, worker=story.chat.another())
    await story.goes_on()
    assert await story.end() == end


async def test_waiting_word_acts_once_when_its_turn_is_taken_over(story: Story) -> None:
    story.phone.may_answer.clear()
    await story.begins()
    await story.writes("yes")
    lease = await story.chat.worker.lease("turn", lease_seconds=0.0)
    looks = story.chat.wire.calls["outbox"]
    story.starts(story.chat.worker.turn_of(lease))
    await until(lambda: story.chat.wire.calls["outbox"] > looks)
    story.starts(story.chat.another().turn())
    await story.goes_on()
    assert await story.end() == "done"


# ── several questions ──


@pytest.mark.parametrize(
    ("word", "deleted"), [("all", ["INV-1", "INV-2"]), ("none", []), ("2", ["INV-2"]), ("not 2", [])]
)
async def test_selection_waits_for_the_receipt_of_its_questions(story: Story, word: str, deleted: list[str]) -> None:
    story.phone.may_answer.clear()
    await story.begins("delete INV-1 INV-2")
    await story.answers(word)
    await story.goes_on()
    assert sorted(story.invoices.deleted) == deleted


@pytest.mark.parametrize("word", ["none", "no", "not 2"])
async def test_untaken_no_leaves_each_question_to_its_code(story: Story, word: str) -> None:
    await story.writes("delete INV-1 INV-2")
    await story.writes(word)
    await story.chat.worker.turn()
    await story.chat.worker.deliver()
    await story.writes("2")
    await story.goes_on()
    assert story.invoices.deleted == []


# ── the limit of answers to unclear words ──


async def test_no_without_an_answer_leaves_the_question_to_its_code(story: Story) -> None:
    """The fourth unclear word within three minutes is not answered."""
    await story.begins()
    await story.chat.notify("The office closes at six.")
    await story.chat.work()
    for _ in range(3):
        await story.writes("yes please")
        await story.chat.work()
        await story.chat.notify("The office closes at six.")
        await story.chat.work()
    sent = len(story.phone.sent)
    await story.writes("no")
    await story.chat.work()
    assert len(story.phone.sent) == sent
    (entry,) = (await story.chat.worker.context.actions(CHAT)).index.open
    assert entry.doubted is not None


# ── a text that is being written ──


PAY = (Call(call_id="1", name="pay", args={"number": 1}), Call(call_id="2", name="pay", args={"number": 2}))


@tool(confirm=Confirm("Pay {number}?", after="resume"))
async def pay(number: int) -> str:
    """Pay."""
    return f"Paid {number}."


@pytest.fixture
def typist() -> Typist:
    return Typist()


@pytest.fixture
async def writing(tmp_path: Path, typist: Typist, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """The model goes on by itself after the first of two payments; the question of the second has been shown again."""
    monkeypatch.setattr(live, "FIRST_SECONDS", 0.0)
    async with rig(ChannelAgent(Agent([pay], provider=typist)), tmp_path, Board()) as chat:
        typist.writes(PAY)
        await chat.hears("ana", "pay")
        await chat.says("ana", "1")
        await chat.worker.turn()
        await chat.worker.engine._actions.run(await chat.worker.lease("action"))
        await chat.worker.deliver()
        assert "Pay 2?" in chat.platform.texts()[-1]
        yield chat


async def second_payment(chat: Rig) -> str:
    return {action.args["number"]: action.reason or action.state for action in await chat.actions()}[2]


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_word_to_a_growing_text_answers_no_question_above_it(writing: Rig, typist: Typist, word: str) -> None:
    turn = asyncio.create_task(writing.worker.turn())
    typist.writes("That is paid. Shall I send the receipt")
    await until(lambda: any("receipt" in text for text in writing.platform.texts()))
    await writing.says("ana", word)
    typist.writes("?", ())
    await turn
    await writing.worker.turn()
    assert await second_payment(writing) == "pending"


@pytest.mark.parametrize(("word", "end"), [("yes", "approved"), ("no", "refused")])
async def test_word_before_a_growing_text_answers_the_question(
    writing: Rig, typist: Typist, word: str, end: str
) -> None:
    turn = asyncio.create_task(writing.worker.turn())
    await until(lambda: len(typist.requests) > 1)
    await writing.says("ana", word)
    typist.writes("That is paid. Shall I send the receipt?", ())
    await turn
    await writing.worker.turn()
    assert await second_payment(writing) == end


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_text_of_a_process_that_ended_was_seen_too(writing: Rig, typist: Typist, word: str) -> None:
    """The next attempt at the turn writes no text before the word is judged."""
    lease = await writing.worker.lease("turn", lease_seconds=0.0)
    turn = asyncio.create_task(writing.worker.turn_of(lease))
    typist.writes("That is paid. Shall I send the receipt")
    await until(lambda: any("receipt" in text for text in writing.platform.texts()))
    await writing.says("ana", word)
    await killed(turn)
    typist.writes("Anything else?", ())
    other = writing.another()
    await other.turn()
    await other.turn()
    assert await second_payment(writing) == "pending"
