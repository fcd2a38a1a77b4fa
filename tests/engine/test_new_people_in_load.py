"""The gateway answers a new person under any load, and keeps no count of them afterwards."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels import ButtonPress, Event, MessageEdited, Person, Reaction
from gateway.limits import Limits
from gateway.store.errors import Overloaded
from gateway.store.types import FOLDED_AFTER_SECONDS
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, message, rig

pytestmark = pytest.mark.nightly

pytestmark = pytest.mark.usefixtures("nobody_waits_long")
PEOPLE = ("mallory", "trudy", "oscar")


@pytest.fixture
async def chat(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    async with rig(invoices.bot(), tmp_path, limits=Limits.usual()) as chat:
        yield chat


class Crowd:
    """Three people who do anything, in their own chats, in groups and in threads."""

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
    """Somebody new is answered at once, and in the end nothing is left that waits."""
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


async def test_new_person_is_answered_among_a_busy_few(chat: Rig) -> None:
    crowd = Crowd(chat, seed=7)
    await crowd.does(400, works_each=50)
    assert crowd.refused == 0, "limits by person come before those for all"
    await check(chat)


async def test_new_person_is_answered_after_a_backlog(chat: Rig) -> None:
    await Crowd(chat, seed=11).does(250, works_each=10_000)
    await check(chat)


@pytest.mark.timeout(3600)
async def test_new_person_is_answered_after_100_000_events(chat: Rig) -> None:
    """For eight minutes at most."""
    ends, done, crowd = time.monotonic() + 480, 0, Crowd(chat, seed=13)
    while done < 100_000 and time.monotonic() < ends:
        await crowd.does(1_000, works_each=200)
        done += 1_000
    await check(chat)
    print(f"{done} events")
