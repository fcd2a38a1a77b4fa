"""A run: people write while workers, and their Redis, are killed, frozen and restarted, until all work is done."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from channels import Json
from tests.chaos import worker as script
from tests.chaos.record import Record
from tests.chaos.story import make_story
from tests.chaos.worker import Job
from tests.children import children
from tests.e2e.house import SECRET, SIGNING
from tests.fakes.telegram import FakeTelegram, Message, User
from tests.store.redis_server import RedisServer

__all__ = ["Form", "Run", "Worker", "opened"]

_LOOKS_SECONDS = 0.05
_DELIVERED_AGAIN = 0.1
_REDELIVERED_AFTER_SECONDS = 0.5
_PRESSED_AFTER_SECONDS = 4.0
_FROZEN = 0.4
_FROZEN_LEASES = 1.6
_AWAY_SECONDS = 0.3
_MANAGERS = 2
_QUIET_WITHIN_SECONDS = 300.0
_LEFT = ("pointed", "ready", "leased", "parked", "parts", "handed over")
"""An outcome is not counted: it may wait for the next turn."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The length and the strain of a run."""

    conversations: int
    messages: int
    """The messages of each conversation."""
    lease_seconds: float
    workers: int
    signals: int
    """The number of the monkey's signals. People write as long as the monkey works."""
    signal_every_seconds: float
    server_restarts: int = 0
    seed: int = 1

    @property
    def over_seconds(self) -> float:
        return self.signals * self.signal_every_seconds


class Worker:
    """A child process. `url`: the address of its server, set once the worker has begun."""

    def __init__(self, job: Job) -> None:
        self.url: str | None = None
        self._pipe, theirs = children.Pipe()
        self.process = children.Process(target=script.run, args=(theirs, job), daemon=True)
        self.process.start()
        theirs.close()

    async def begun(self) -> None:
        """Wait until the worker listens or has ended."""
        with contextlib.suppress(EOFError, OSError):
            self.url = await asyncio.to_thread(self._pipe.recv)

    async def left(self) -> dict[str, Json]:
        """Return the work left in the store. Raises EOFError or OSError if the worker has ended."""
        self._pipe.send("what is left?")
        counts = await asyncio.to_thread(self._pipe.recv)
        counts["handed over"] = counts["timer_kinds"].get("handover", 0)
        return {name: counts[name] for name in _LEFT if counts[name]}

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, number)

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.join)
        self._pipe.close()


class Run:
    """Everything around the workers. The seed gives the messages and the hit workers, but no moments."""

    def __init__(
        self, form: Form, job: Job, telegram: FakeTelegram, managers: Sequence[User], server: RedisServer | None
    ) -> None:
        self.form, self.job, self.telegram, self._server = form, job, telegram, server
        self.record = Record(job.record)
        self.chance = random.Random(form.seed)
        self.story = make_story(form.conversations, form.messages, self.chance)
        self.people = [telegram.person(f"P{number}") for number in range(form.conversations)]
        self.workers: list[Worker] = []
        self.managers = managers
        self._pressed = 0
        telegram.answer_is_lost = lambda: self.chance.random() < _DELIVERED_AGAIN

    async def go(self) -> None:
        """Run from the first message until no work is left."""
        await asyncio.gather(*(self.start() for _ in range(self.form.workers)))
        self.deliver_to(self.workers[0])
        for manager in self.managers:  # the bot cannot write to them first
            await self.telegram.person_says(manager, manager, "/start")
        around = [asyncio.create_task(task) for task in (self._keep_alive(), self._press())]
        try:
            async with asyncio.TaskGroup() as group:
                for task in (self.write(), self._monkey(), self._restart_server()):
                    group.create_task(task)
            await self.quiet()
        finally:
            for each in around:
                each.cancel()
            await asyncio.wait(around)
        for each in around:
            assert each.cancelled(), each

    async def quiet(self) -> None:
        """Wait until all messages are delivered, all questions are confirmed, and no work is left."""
        waits: list[object] = []
        try:
            async with asyncio.timeout(_QUIET_WITHIN_SECONDS):
                while any(waits := [len(self.telegram._pending), self._unpressed, await self._left()]):
                    await asyncio.sleep(_LOOKS_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not quiet; not delivered, not confirmed, left in the store: {waits}") from None

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(_LOOKS_SECONDS)

    @property
    def _unpressed(self) -> int:
        """The number of shown questions without a press."""
        return sum("Confirm" in message.once_shown for message in self.telegram.sent) - self._pressed

    async def _left(self) -> dict[str, Json]:
        """Return the work left in the store."""
        while True:
            with contextlib.suppress(EOFError, OSError, IndexError):  # that one is gone; another comes
                return await self.workers[0].left()
            await asyncio.sleep(_LOOKS_SECONDS)

    # ── workers ──

    async def start(self, **other: Any) -> Worker:
        """Start one more worker; `other`: the changed fields of the job."""
        worker = await asyncio.to_thread(Worker, replace(self.job, **other))
        await worker.begun()
        self.workers.append(worker)
        return worker

    async def _keep_alive(self) -> None:
        """Replace each ended worker. Telegram delivers to a random worker."""
        while True:
            for worker in [worker for worker in self.workers if not worker.process.is_alive()]:
                self.workers.remove(worker)
                await worker.kill()
                await self.start()
            if self.workers:
                self.deliver_to(self.chance.choice(self.workers))
            await asyncio.sleep(_LOOKS_SECONDS)

    def deliver_to(self, worker: Worker) -> None:
        if worker.url is not None:
            self.telegram.webhook.update(url=worker.url, secret=SECRET)
            self.telegram._pump()

    def signal(self, worker: Worker, number: signal.Signals) -> None:
        self.record.write("signal", how=number.name, to=worker.process.pid)
        worker.signal(number)

    # ── people ──

    async def write(self) -> None:
        """Write the whole story, evenly over the time."""
        between = self.form.over_seconds / (self.form.conversations * self.form.messages)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, (place, text) in enumerate(self.story.spoken(self.chance)):
            await asyncio.sleep(began + number * between - loop.time())
            await self.telegram.person_says(self.people[place], self.people[place], text, wait=False)

    async def _press(self) -> None:
        """Confirm each question some time after the showing, as the person of the chat."""

        async def confirm(message: Message) -> None:
            await asyncio.sleep(self.chance.uniform(0, _PRESSED_AFTER_SECONDS))
            people = (*self.people, *self.managers)
            person = next(person for person in people if person.id == message.chat.id)
            await self.telegram.press(message, "Confirm", person, wait=False)
            self._pressed += 1

        seen = 0
        async with asyncio.TaskGroup() as group:
            while True:
                for message in self.telegram.sent[seen:]:
                    seen += 1
                    if "Confirm" in message.once_shown:
                        group.create_task(confirm(message))
                await asyncio.sleep(_LOOKS_SECONDS)

    # ── failures ──

    async def _monkey(self) -> None:
        """Kill or freeze random workers, some for longer than a lease. A single worker is only killed: no other could
        take over."""

        async def freeze(worker: Worker, seconds: float) -> None:
            self.signal(worker, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self.record.write("thawed", who=worker.process.pid)
            worker.signal(signal.SIGCONT)

        async with asyncio.TaskGroup() as group:
            for _ in range(self.form.signals):
                await asyncio.sleep(self.form.signal_every_seconds)
                while not self.workers:
                    await asyncio.sleep(_LOOKS_SECONDS)
                victim = self.chance.choice(self.workers)
                if self.form.workers > 1 and self.chance.random() < _FROZEN:
                    seconds = self.chance.uniform(0.1, _FROZEN_LEASES) * self.form.lease_seconds
                    group.create_task(freeze(victim, seconds))
                else:
                    self.signal(victim, signal.SIGKILL)

    async def _restart_server(self) -> None:
        for number in range(self.form.server_restarts):
            assert self._server is not None
            await asyncio.sleep(self.form.over_seconds / (self.form.server_restarts + 1))
            self.record.write("server", how="restarted")
            end: Callable[[], Any] = self._server.kill if number % 2 == 0 else self._server.shut_down
            await end()
            await asyncio.sleep(_AWAY_SECONDS)
            await self._server.start()


@contextlib.asynccontextmanager
async def opened(form: Form, directory: Path, server: RedisServer | None = None) -> AsyncIterator[Run]:
    """A run without messages and workers yet, on Redis or on a file in the directory."""
    store = server.url if server is not None else f"sqlite:///{directory / 'askfirst.db'}"
    async with FakeTelegram(redeliver_seconds=_REDELIVERED_AFTER_SECONDS) as telegram:
        settings = {
            "store": store,
            "secret": SIGNING,
            "artifacts": directory / "artifacts",
            "allow": "telegram:*",
            "telegram_bot_token": telegram.token,
            "telegram_webhook_secret": SECRET,
            "telegram_api_url": telegram.url,
        }
        managers = [telegram.person(f"M{number}") for number in range(_MANAGERS)]
        job = Job(
            settings=settings,
            record=directory / "record",
            lease_seconds=form.lease_seconds,
            managers=tuple(f"telegram:{telegram.bot.id}:{manager.id}" for manager in managers),
        )
        run = Run(form, job, telegram, managers, server)
        try:
            yield run
        finally:
            for worker in run.workers:
                await worker.kill()
