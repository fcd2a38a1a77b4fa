"""One person gets a bounded share: messages a minute, turns at once, replies to strangers, turns to send."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from channels import ButtonPress, Event, MessageEdited, Parsed, Person, Reaction, WebhookResponse
from gateway.artifacts import Artifact, NotKept
from gateway.config.limits import Limits, Share
from gateway.engine.pacing import _Queue
from gateway.engine.turns.runner import TurnRunner
from gateway.store.errors import Overloaded, StoreUnavailable
from gateway.store.types import FOLDED_AFTER_SECONDS
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, message, rig

TEN = Limits(messages=Share(10))


def limited(
    tmp_path: Path, limits: Limits, invoices: Invoices | None = None, people: Sequence[str] = ("*",)
) -> AbstractAsyncContextManager[Rig]:
    return rig((invoices or Invoices()).bot(), tmp_path, limits=limits, people=people)


# ── messages a minute ──


async def test_messages_above_a_persons_rate_are_refused_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with limited(tmp_path, TEN) as chat:
        for number in range(30):
            await chat.says("mallory", f"word {number}", place=f"#thread {number}")
        await chat.handles("ana", "hello")
        told = [
            text for _, part in chat.platform.sent if (text := str(part.arguments["text"])) == say("too_fast", "en")
        ]
        assert told == [say("too_fast", "en")]
        assert 10 <= len([text for text in all_texts(chat) if text.startswith("You said: word")]) <= 12
        assert chat.platform.texts("ana") == ["You said: hello"]
        warned = [record for record in caplog.records if "ASKFIRST_LIMITS" in record.getMessage()]
        assert [record.levelno for record in warned] == [logging.WARNING]
        assert "word" not in caplog.text


def all_texts(chat: Rig) -> list[str]:
    return [str(part.arguments["text"]) for _, part in chat.platform.sent]


async def test_messages_are_read_again_a_minute_after_the_limit(tmp_path: Path) -> None:
    async with limited(tmp_path, TEN) as chat:
        for number in range(20):
            await chat.says("ana", f"word {number}")
        await chat.work()
        portions = chat.worker.engine.inbox._messages._portions["person/test:bot:ana"]
        portions.refused_until = 0.0  # a minute has passed on this process's clock, and on the store's
        await chat.advance(61)
        await chat.handles("ana", "again")
        assert chat.platform.texts()[-1] == "You said: again"


async def test_message_delivered_again_counts_once(tmp_path: Path) -> None:
    """A platform repeats a refused delivery, and a delivery without an answer: neither counts as writing too fast."""
    async with limited(tmp_path, TEN) as chat:
        written = message("ana", "hello")
        chat.wire.errors["accept"] = [Overloaded("10000 events wait"), StoreUnavailable("Redis is away")] * 10
        for _ in range(20):
            with pytest.raises((Overloaded, StoreUnavailable)):
                await chat.take(written)
        chat.wire.errors["accept"] = [asyncio.CancelledError() for _ in range(20)]
        for _ in range(20):
            with pytest.raises(asyncio.CancelledError):
                await chat.take(written)
        for _ in range(20):
            await chat.take(written)
        await chat.work()
        await chat.handles("ana", "and again")
        assert all_texts(chat) == ["You said: hello", "You said: and again"]


async def test_a_rate_is_of_all_instances_together(tmp_path: Path) -> None:
    async with limited(tmp_path, Limits(messages=Share(30))) as chat:
        others = [chat.another() for _ in range(3)]
        for worker in others:
            worker.engine.inbox._messages._share = Share(30)
        taken = 0
        for _ in range(40):
            for worker in others:
                rates = worker.engine.inbox._messages
                taken += await rates.exceeded(Person(channel="test", account="bot", user_id="m"), here("m")) is None
        assert 30 <= taken <= 30 + 3 * 5


async def test_a_place_has_a_rate_too(tmp_path: Path) -> None:
    async with limited(tmp_path, Limits(messages=Share(None, 12, None))) as chat:
        for number in range(30):
            await chat.says(f"person {number}", "hello", place="#room")
        await chat.handles("ana", "hello")
        assert len(chat.platform.texts("#room")) < 20 + 12
        assert chat.platform.texts("ana") == ["You said: hello"]


async def test_a_flood_of_words_takes_no_yes_from_anybody(tmp_path: Path, invoices: Invoices) -> None:
    async with limited(tmp_path, TEN, invoices) as chat:
        await chat.handles("ana", "delete INV-1")
        (action,) = await chat.actions()
        for number in range(30):
            await chat.says("ana", f"word {number}")
        await chat.handles("ana", f"OK {action.code}")
        assert invoices.deleted == ["INV-1"]


async def test_a_flood_of_presses_is_bounded(tmp_path: Path) -> None:
    async with limited(tmp_path, TEN) as chat:
        person = Person(channel="test", account="bot", user_id="mallory")
        for number in range(60):
            press = ButtonPress(event_ids=(f"p{number}",), address=here("#room"), person=person, token=f"t{number}")
            await chat.take(press)
        assert chat.wire.calls["accept"] <= 2 * 10 + 4


async def test_a_message_shaped_like_a_decision_is_a_message(tmp_path: Path) -> None:
    """A message with a code of no question here counts, waits and is refused as any other."""
    async with limited(tmp_path, TEN) as chat:
        for _ in range(30):
            await chat.says("mallory", "OK K7P2", place="#room")
        assert (await chat.store.stats()).waiting <= 12
        assert chat.wire.calls["pending_decisions"] == 0


# ── turns at once ──


async def test_person_in_many_threads_takes_only_a_few_turns(tmp_path: Path, invoices: Invoices) -> None:
    async with limited(tmp_path, Limits(turns=Share(3, 32, 64)), invoices) as chat:
        for number in range(20):
            thread = replace(here("#team"), thread=str(number))
            await chat.take(replace(message("mallory", "wait", answers_bot=True), address=thread))
        await chat.says("ana", "hello")
        turns = TurnRunner(chat.worker.context, chat.worker.decisions)
        running = []
        while (lease := await chat.store.lease("w", ["turn"])) is not None:
            running.append(asyncio.create_task(turns.run(lease)))
            await asyncio.wait(running, timeout=0.05)
        assert len(invoices.model.requests) == 3 + 1
        invoices.model.let_go.set()
        await asyncio.gather(*running)
        for _ in range(8):
            await chat.advance(3)
            await chat.work()
        assert len(invoices.model.requests) == 20 + 1, "the others have waited, and nothing is lost"


# ── strangers ──


async def test_replies_to_strangers_are_few_in_all_and_a_second(tmp_path: Path) -> None:
    limits = Limits(strangers=Share(1, 1, 5))
    async with limited(tmp_path, limits, people=["test:bot:ana"]) as chat:
        for second in range(4):
            for number in range(50):
                await chat.says(f"stranger {second} {number}", "hello")
            await chat.worker.context.tasks.ended()
            await chat.advance(1.1)
        assert (await chat.store.stats()).parts == 5
        assert chat.wire.calls["accept"] == 0


# ── the way to the account ──


async def test_places_are_served_in_turn(tmp_path: Path) -> None:
    queue, served = _Queue(), []

    async def one(name: str) -> None:
        async with queue.turn_of(name):
            served.append(name)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one("mallory")) for _ in range(50)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(one("ana")))
    await asyncio.gather(*tasks)
    assert served.index("ana") <= 3 and len(served) == 51


async def test_cancelled_waiter_delays_no_other_waiter() -> None:
    queue, served = _Queue(), []

    async def one(name: str) -> None:
        async with queue.turn_of(name):
            await asyncio.sleep(0)
            served.append(name)

    tasks = [asyncio.create_task(one(name)) for name in "abcd"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert served == ["a", "c", "d"]
    await one("e")
    assert served[-1] == "e"


# ── files ──


def report(number: int, size: int) -> Artifact:
    content = bytes([number]) * size
    return Artifact(
        sha256=hashlib.sha256(content).hexdigest(),
        mime_type="application/pdf",
        filename=f"{number}.pdf",
        size=size,
        role="output",
        content=content,
    )


async def test_one_persons_files_are_bounded_and_take_none_of_anothers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with limited(tmp_path, Limits(files=Share(2, None, 6))) as chat:
        context = chat.worker.context
        for number in range(2):
            await context.files.keep(report(number, 1024**2), "mallory")
        await context.files.keep(report(1, 1024**2), "mallory")  # the same bytes take nothing more
        for number in (2, 3):
            with pytest.raises(NotKept, match="ASKFIRST_LIMITS allows files=2/-/6 MiB"):
                await context.files.keep(report(number, 1024**2), "mallory")
        with pytest.raises(NotKept):
            await context.files.keep(report(9, 3 * 1024**2), "bob")  # larger than all that he may keep
        await context.files.keep(report(4, 1024**2), "ana")
        assert len([record for record in caplog.records if "mallory" in record.getMessage()]) == 1
        await chat.advance(31 * 86_400)
        await context.files.keep(report(5, 1024**2), "mallory")


async def test_files_of_all_people_together_are_bounded(tmp_path: Path) -> None:
    async with limited(tmp_path, Limits(files=Share(None, None, 2))) as chat:
        for number in range(2):
            await chat.worker.context.files.keep(report(number, 1024**2), f"person {number}")
        with pytest.raises(NotKept):
            await chat.worker.context.files.keep(report(7, 1024**2), "another")


# ── commands ──


@pytest.mark.parametrize(("command", "expected"), [("/help", "/new"), ("/new", say("new_done", "en"))])
async def test_command_does_not_wait_behind_a_failing_turn(tmp_path: Path, command: str, expected: str) -> None:
    from gateway.providers.base import ProviderError
    from gateway.testing import ScriptedProvider
    from tests.engine.test_turns import bot

    down = ProviderError("openai", "503", retryable=False)
    script = ScriptedProvider([down, "Hello."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.handles("mallory", "hello", place="#room")
        await chat.handles("vera", command, place="#room")
        assert expected in chat.platform.texts("#room")[-1]
        await chat.advance(6)
        await chat.work()
        assert chat.platform.texts("#room")[-1] == "Hello."


async def test_new_command_waits_for_the_running_turn(chat: Rig, invoices: Invoices) -> None:
    running = await chat.waits()
    await chat.says("ana", "/new")
    invoices.model.let_go.set()
    await running
    await chat.work()
    await chat.handles("ana", "hello")
    assert [each.content for each in invoices.model.requests[-1].messages if each.role == "user"] == ["hello"]


# ── a limit that is reached for all ──


async def test_full_store_is_logged_with_its_largest_mailboxes(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        await chat.says("ana", "hello")
    chat.wire.errors["accept"] = [Overloaded("10000 events wait")] * 2
    for _ in range(2):
        with pytest.raises(Overloaded):
            await chat.worker.engine.inbox.accept(
                chat.platform, Parsed(events=(message("bob", "hi"),), response=WebhookResponse())
            )
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "new messages of everybody are refused: 10000 events wait" in said
    assert "agent/test:bot:ana: 3" in said and "askfirst waiting" in said
    assert chat.worker.context.refusing.why == "10000 events wait"


PEOPLE = ("mallory", "trudy", "oscar")


@pytest.fixture
async def busy(nobody_waits_long: None, tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    async with rig(invoices.bot(), tmp_path, limits=Limits.usual()) as chat:
        yield chat


class Crowd:
    """Three people with random acts, in private chats, groups and threads."""

    def __init__(self, chat: Rig, seed: int) -> None:
        self._chat, self._random = chat, random.Random(seed)
        self._number = 0
        self.refused = 0

    async def does(self, times: int, *, works_each: int) -> None:
        for _ in range(times):
            try:
                await self._chat.take(self._something())
            except Overloaded:
                self.refused += 1
            if self._number % works_each == 0:
                await self._chat.advance(self._random.choice([0.1, 1, 70]))
                await self._chat.work()

    def _something(self) -> Event:
        draw, self._number = self._random, self._number + 1
        who = draw.choice(PEOPLE)
        place = draw.choice([who, "#room", f"#thread {draw.randrange(400)}"])
        person = Person(channel="test", account="bot", user_id=who, name=who)
        ids = (f"crowd {self._number}",)
        match draw.randrange(10):
            case 0 | 1:
                return message(who, f"word {self._number}", place=place)
            case 2:
                return message(who, f"delete INV-{draw.randrange(50)}", place=place)
            case 3:
                return message(who, f"OK {self._code()}", place=place)
            case 4:
                return message(who, draw.choice(["yes", "no", "/stop", "/new", "/help", "/pending"]), place=place)
            case 5 | 6:
                text = draw.choice(["", f"edit {self._number}"])
                number = str(draw.randrange(1_000))
                return MessageEdited(event_ids=ids, address=here(place), person=person, message_id=number, text=text)
            case 7:
                return Reaction(event_ids=ids, address=here(place), person=person, message_id="1", emoji="+1")
            case _:
                return ButtonPress(event_ids=ids, address=here(place), person=person, token=self._token())

    def _code(self) -> str:
        shown = [text.partition("**OK ")[2][:4] for text in self._chat.platform.texts("#room")[-5:] if "**OK " in text]
        return self._random.choice([*shown, "K7P2", "A1B2"])

    def _token(self) -> str:
        sent = [button.token for _, part in self._chat.platform.sent[-20:] for button in part.buttons]
        return self._random.choice([*sent, "00" + "A" * 22])


async def check(chat: Rig) -> None:
    """Check that a new person is answered at once, and that in the end no work is left."""
    began = len(chat.platform.sent)
    await chat.handles("vera", "hello")
    assert "You said: hello" in chat.platform.texts("vera")
    assert began < len(chat.platform.sent)
    for _ in range(3):
        await chat.advance(FOLDED_AFTER_SECONDS + 1)
        await chat.work()
    stats = await chat.store.stats()
    assert (stats.waiting, stats.parked, stats.pointed, stats.parts) == (0, 0, 0, 0)
    assert stats.dead == 0


@pytest.mark.nightly
async def test_new_person_is_answered_among_a_busy_few(busy: Rig) -> None:
    crowd = Crowd(busy, seed=7)
    await crowd.does(400, works_each=50)
    assert crowd.refused == 0, "limits by person come before those for all"
    await check(busy)


@pytest.mark.nightly
async def test_new_person_is_answered_after_a_backlog(busy: Rig) -> None:
    await Crowd(busy, seed=11).does(250, works_each=10_000)
    await check(busy)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_new_person_is_answered_after_100_000_events(busy: Rig) -> None:
    """Run for four minutes at most."""
    ends, done, crowd = time.monotonic() + 240, 0, Crowd(busy, seed=13)
    while done < 100_000 and time.monotonic() < ends:
        await crowd.does(200, works_each=200)
        done += 200
    await check(busy)
    print(f"{done} events")
