"""Two hundred people, most of them honest: they write, press and edit. A few misbehave."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram, User
from tests.fakes.twilio import FakeTwilio

__all__ = ["ON_SLACK", "ON_SMS", "ON_TELEGRAM", "People"]

ON_TELEGRAM, ON_SLACK, ON_SMS = 120, 50, 30
_EACH_SECONDS = 40.0
_FLOOD = 60


class People:
    """`said`: each delivered honest message -> the moment. `confirmed`: the names of the confirmed actions."""

    def __init__(self, telegram: FakeTelegram, slack: FakeSlack, twilio: FakeTwilio, seed: str) -> None:
        self._telegram, self._slack, self._twilio = telegram, slack, twilio
        self._random, self.seed, self._numbers = random.Random(seed), seed, itertools.count(1)
        self._on_telegram = [telegram.person(f"T{number}") for number in range(ON_TELEGRAM)]
        self._mallory, self._strangers = telegram.person("Mallory"), [telegram.person("S") for _ in range(20)]
        self._on_slack = [slack.person(f"s{number}") for number in range(ON_SLACK)]
        self._on_sms = [f"+1555100{number:04}" for number in range(ON_SMS)]
        self.said: dict[str, float] = {}
        self.confirmed: set[str] = set()
        self.rude = 0
        """The number of events of misbehaving people."""
        self._tasks: set[asyncio.Task[None]] = set()

    def number_from(self, number: int) -> None:
        """Begin the numbers of messages and updates here. The people's earlier messages have lower numbers."""
        self._telegram._ids = self._slack._ids = self._twilio._ids = itertools.count(number)
        self._telegram._update_ids = itertools.count(900_000_000 + number)

    @property
    def allowed(self) -> str:
        """Return the allow list: all people except the strangers."""
        bot = self._telegram.bot.id
        persons = [f"telegram:{bot}:{person.id}" for person in [*self._on_telegram, self._mallory]]
        return ",".join([*persons, "slack:*", "sms:*"])

    async def live(self, seconds: float) -> None:
        """Let all people act for so many seconds. Returns when all have stopped."""
        ends = time.monotonic() + seconds
        honest: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *(lambda person=person: self._writes_on_telegram(person) for person in self._on_telegram),
            *(lambda person=person: self._writes_on_slack(person) for person in self._on_slack),
            *(lambda person=person: self._writes_by_sms(person) for person in self._on_sms),
        ]
        async with asyncio.TaskGroup() as group:
            for act in honest:
                group.create_task(self._again(act, _EACH_SECONDS, ends))
            group.create_task(self._again(self._floods, 30.0, ends))
            group.create_task(self._again(self._edits, 2.0, ends))
            group.create_task(self._again(self._moves, 0.2, ends))
            group.create_task(self._again(self._is_a_stranger, 0.5, ends))
            group.create_task(self._again(self._reacts, 1.0, ends))
        await asyncio.gather(*self._tasks)

    async def _again(self, act: Callable[[], Coroutine[Any, Any, None]], each: float, ends: float) -> None:
        await asyncio.sleep(self._random.uniform(0, each))
        while time.monotonic() < ends:
            task = asyncio.create_task(act())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(min(self._random.uniform(0.5, 1.5) * each, max(0.0, ends - time.monotonic())))

    def _words(self) -> str:
        """Return a message. A tenth asks for an action to confirm."""
        kind = self._random.choice(["plain"] * 7 + ["note"] * 2 + ["pay"])
        return f"{kind} {self.seed}-{next(self._numbers)}"

    # ── honest people ──

    async def _writes_on_telegram(self, person: User) -> None:
        words = self._words()
        await self._telegram.person_says(person, person, words, wait=False)
        self.said[words] = time.monotonic()
        if words.startswith("pay "):
            name = words.removeprefix("pay ")
            prompt = await self._telegram.wait_for(
                lambda: next((sent for sent in self._telegram.sent if name in sent.text and sent.once_shown), None), 120
            )
            await asyncio.sleep(self._random.uniform(0.5, 4))
            await self._telegram.press(prompt, "Confirm", person, wait=False)
            self.confirmed.add(name)

    async def _writes_on_slack(self, person: str) -> None:
        words = self._words().replace("pay ", "note ")
        before = len(self._slack.deliveries)
        await self._slack.says(person, self._slack.direct(person), words)
        if any(delivery.status == 200 for delivery in self._slack.deliveries[before:]):
            self.said[words] = time.monotonic()

    async def _writes_by_sms(self, person: str) -> None:
        """Twilio delivers once: only an accepted message counts."""
        words = self._words().replace("pay ", "note ")
        try:
            answer = await self._twilio.person_says(person, words)
        except aiohttp.ClientError:
            return
        if answer.status == 200:
            self.said[words] = time.monotonic()

    async def _edits(self) -> None:
        person = self._random.choice(self._on_telegram)
        words = f"plain {self.seed}-{next(self._numbers)}"
        message = await self._telegram.person_says(person, person, words, wait=False)
        self.said[words] = time.monotonic()
        for number in range(3):
            await self._telegram.person_edits(message, f"{words} edited {number}", wait=False)

    # ── the others ──

    async def _floods(self) -> None:
        for number in range(_FLOOD):
            self.rude += 1
            await self._telegram.person_says(self._mallory, self._mallory, f"plain flood-{number}", wait=False)

    async def _moves(self) -> None:
        """A live location goes on for hours: each step is an edit of the same message."""
        self.rude += 1
        here = {"latitude": self._random.uniform(-80, 80), "longitude": self._random.uniform(-170, 170)}
        step = {
            "message_id": 1,
            "date": int(time.time()) - 60,
            "edit_date": int(time.time()),
            "chat": {"id": self._mallory.id, "type": "private", "first_name": "Mallory"},
            "from": self._mallory.to_json(),
            "location": {**here, "live_period": 28_800},
        }
        await self._telegram.deliver("edited_message", self._mallory, step, wait=False)

    async def _is_a_stranger(self) -> None:
        self.rude += 1
        stranger = self._random.choice(self._strangers)
        await self._telegram.person_says(stranger, stranger, f"let me in {self.rude}", wait=False)

    async def _reacts(self) -> None:
        person = self._random.choice(self._on_telegram)
        reaction = {
            "chat": {"id": person.id, "type": "private", "first_name": person.first_name},
            "message_id": 1,
            "date": int(time.time()),
            "user": person.to_json(),
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": "\N{THUMBS UP SIGN}"}],
        }
        self.rude += 1
        await self._telegram.deliver("message_reaction", person, reaction, wait=False)
