"""An engine worked by hand in a test: one lane at a time, on a real store, over a scripted platform."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import pytest

from channels import (
    Address,
    ButtonPress,
    Capabilities,
    Event,
    Forged,
    Message,
    MessageEdited,
    Parsed,
    Part,
    Person,
    Receipt,
    Reply,
    WebhookRequest,
    WebhookResponse,
)
from gateway import ChannelAgent
from gateway.access import AllowList
from gateway.assembly import Storage, assemble, open_store
from gateway.bot.turn import Outcome
from gateway.config.limits import Limits, Retention, parse_budgets
from gateway.config.settings import EngineRules
from gateway.engine.decisions.lane import Decisions
from gateway.engine.delivery.sender import PartSender
from gateway.engine.leases import prefetch
from gateway.engine.memory.jobs import MemoryRunner
from gateway.engine.turns.runner import TurnRunner
from gateway.observe.event_log import EventLog
from gateway.observe.teller import Teller
from gateway.privacy.expiry import Expiry
from gateway.store.base import Store
from gateway.store.types import KINDS, Kind, Lease
from gateway.testing import ScriptedProvider
from gateway.testing.doubles import FaultyStore
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Model
from tests.stored import action_of
from tests.told import Told

__all__ = [
    "Platform",
    "Rig",
    "Worker",
    "code_of",
    "here",
    "killed",
    "message",
    "on_redis_at_night",
    "rig",
    "until",
    "user_lines",
]

on_redis_at_night = pytest.mark.parametrize(
    "kept_on", ["sqlite", pytest.param("redis", marks=pytest.mark.nightly)], indirect=True
)
"""Marks a story independent of the store, in a module for both stores."""

KEYS = [b"a key of more than 16 bytes"]


class Platform:
    """Shows the sent parts. `will` scripts the next sends: raise an error, or wait for an event and then show."""

    name: ClassVar[str] = "test"

    def __init__(self, **capabilities: Any) -> None:
        options: dict[str, Any] = {"max_text": 100_000, "buttons": 100, "button_label": 100, "edit": True}
        options["bare_yes"] = "ordered"
        self.capabilities = Capabilities(**{**options, **capabilities})
        self.will: list[Exception | asyncio.Event] = []
        self.sent: list[tuple[str, Part]] = []
        self.keys: list[str] = []
        self.sending = asyncio.Event()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Literal["webhook", "polling"]) -> Self:
        return cls()

    async def start(self, http: Any) -> None:
        """Start without any preparation."""

    async def close(self) -> None:
        """Close no resource."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        raise Forged("no webhook")

    def parse(self, request: WebhookRequest) -> Parsed:
        return Parsed(events=(), response=WebhookResponse(status=404))

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return message.after in (None, receipt.message_id)

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        call = "edit" if reply.edits is not None else "show"
        words = [Part(call=call, arguments={"text": reply.text}, buttons=reply.buttons)]
        files = [Part(call="file", arguments={"text": item.filename}, media=item) for item in reply.media]
        return [*(words if reply.text or reply.buttons else []), *files]

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        self.keys.append(key)
        self.sending.set()
        if self.will:
            what = self.will.pop(0)
            if isinstance(what, Exception):
                raise what
            await what.wait()
        self.sent.append((address.place, part))
        return Receipt(message_id=str(len(self.sent)))

    def texts(self, place: str = "ana") -> list[str]:
        return [str(part.arguments["text"]) for where, part in self.sent if where == place]

    def new_texts(self, place: str = "ana") -> list[str]:
        """Return the texts of the messages, without edits."""
        return [str(part.arguments["text"]) for where, part in self.sent if where == place and part.call != "edit"]


class Worker:
    """The engine of a process, without started loops."""

    def __init__(
        self,
        bot: ChannelAgent,
        wire: FaultyStore,
        platforms: Mapping[str, Any],
        files: Path,
        *,
        limits: Limits | None = None,
        people: Sequence[str] = ("*",),
        budgets: str = "",
    ) -> None:
        self.told = Told()
        events = Teller(readers=[EventLog(), self.told], observers=bot.observers)
        home, allowed = Storage(cast("Store", wire), KEYS, files), AllowList(people)
        self.engine = assemble(
            bot,
            home,
            platforms,
            allowed=allowed,
            events=events,
            rules=EngineRules(limits=limits or Limits(), budgets=parse_budgets(budgets)),
        )
        self.context = self.engine.context
        self.decisions = Decisions(self.context)
        self.delivery = PartSender(self.context)
        self.memory = MemoryRunner(self.context)

    async def lease(self, kind: Kind, **options: Any) -> Lease:
        lease = await self.context.store.lease(
            self.context.worker, [kind], pool=Platform.name, prefetch=prefetch(self.context, kind), **options
        )
        assert lease is not None, f"no {kind} is ready"
        return lease

    async def turn(self, *, deadline_seconds: float = 60.0) -> Outcome | None:
        """Run the longest-ready turn."""
        return await self.turn_of(await self.lease("turn"), deadline_seconds=deadline_seconds)

    async def turn_of(self, lease: Lease, *, deadline_seconds: float = 60.0) -> Outcome | None:
        return await TurnRunner(self.context, self.decisions, deadline_seconds=deadline_seconds).run(lease)

    async def deliver(self) -> None:
        """Work off the longest-ready outbox, until the lane is given back."""
        await self.delivery.run(await self.lease("out"))


@dataclass
class Rig:
    """A platform, a store and workers."""

    bot: ChannelAgent
    store: Store
    wire: FaultyStore
    """The workers' way to the store."""
    platform: Platform
    files: Path
    worker: Worker

    def another(self) -> Worker:
        """Return another process on the same store."""
        worker = Worker(self.bot, self.wire, {Platform.name: self.platform}, self.files)
        worker.context.rules = self.worker.context.rules
        return worker

    async def take(self, *events: Event) -> None:
        """Accept events, and wait until all decisions among the events are made."""
        parsed = Parsed(events=tuple(events), response=WebhookResponse())
        await self.worker.engine.inbox.accept(self.platform, parsed)
        for number in itertools.count(1):
            if not (await self.store.stats()).pointed:
                return
            await asyncio.sleep(0)
            if number % 100 == 0:  # a hand-over fired another chat's due timer; a gateway's loop decides its event
                await self.worker.engine._decisions.sweep(0.0)

    async def says(self, person: str, text: str, **more: Any) -> None:
        await self.take(message(person, text, **more))

    async def presses(self, token: str, person: str = "ana", **more: Any) -> None:
        ids = (f"press {next(_numbers)}",)
        await self.take(ButtonPress(event_ids=ids, address=here(person), person=person_of(person), token=token, **more))

    async def edits(self, person: str, message_id: str, text: str, **more: Any) -> None:
        await self.take(
            MessageEdited(
                event_ids=(f"edit {next(_numbers)}",),
                address=here(more.get("place", person)),
                person=person_of(person),
                message_id=message_id,
                text=text,
            )
        )

    async def advance(self, seconds: float) -> None:
        self.store.offset_seconds += seconds
        await self.worker.engine.due()

    async def ready(self) -> int:
        return (await self.store.stats()).ready

    async def hears(self, person: str, *texts: str, **more: Any) -> None:
        """Take each text of a person, and run the turn of each."""
        for text in texts:
            await self.says(person, text, **more)
            await self.turns()

    async def handles(self, person: str, *texts: str, **more: Any) -> None:
        """Take each text of a person, and do all possible work, effects included."""
        for text in texts:
            await self.says(person, text, **more)
            await self.work()

    async def later(self, seconds: float) -> None:
        """Let time pass, and run the due turns."""
        await self.advance(seconds)
        await self.turns()

    async def retries(self, times: int, *, every: float) -> None:
        """Run the due turns and let `every` seconds pass, again and again."""
        for _ in range(times):
            await self.turns()
            await self.advance(every)

    async def work(self) -> None:
        """Do all possible work now, effects included."""
        worker = self.worker
        runs: dict[str, Any] = {
            "turn": worker.turn_of,
            "memory": worker.memory.run,
            "action": worker.engine._actions.run,
            "out": worker.delivery.run,
        }
        idle = 0
        while (stats := await self.store.stats()).ready:
            idle += 1
            for kind in KINDS:
                lease = await self.store.lease("w", [kind], pool=Platform.name, prefetch=prefetch(worker.context, kind))
                if lease is not None:
                    idle = 0
                    await runs[kind](lease)
            assert idle < 5_000, f"what is ready cannot be leased: {stats}"
        await worker.context.tasks.ended()  # such as the answer to a press

    async def actions(self) -> list[PendingAction]:
        """Return the actions of all chats, the oldest first."""
        found = [action_of(record.value) for _, record in await self.store.scan("action/")]
        return sorted(found, key=lambda action: action.requested_at)

    async def asks(self, *numbers: int) -> list[PendingAction]:
        """Have Ana asked about each of these invoices by a separate question."""
        for number in numbers:
            await self.handles("ana", f"delete INV-{number}")
        return await self.actions()

    async def confirms(self, person: str = "ana") -> None:
        """Ask a person about an invoice, and take the yes by code; the effect does not run yet."""
        await self.hears(person, "delete INV-1")
        await self.says(person, f"ok {code_of(self.platform.texts(person)[-1])}")

    async def waits(self, **more: Any) -> asyncio.Task[Outcome | None]:
        """Begin a turn of Ana, held until `let_go` of the model is set."""
        await self.says("ana", "wait", **more)
        running = asyncio.create_task(self.worker.turn())
        await cast("Model", self.bot.agent.provider).waiting.wait()
        return running

    async def taken_over(self, calls: int = 2) -> tuple[Worker, Lease, asyncio.Task[Outcome | None]]:
        """Begin a turn, and lease the turn to another process during this call to the model: the first is a zombie."""
        script = cast("ScriptedProvider", self.bot.agent.provider)
        zombie = asyncio.create_task(self.worker.turn_of(await self.worker.lease("turn", lease_seconds=0.0)))
        await until(lambda: len(script.requests) >= calls)
        other = self.another()
        return other, await other.lease("turn"), zombie

    async def notify(self, *texts: str, place: str = "ana") -> None:
        for text in texts:
            await self.worker.engine.runtime.notify(here(place), Reply(text=text))

    async def dead(self) -> list[str]:
        """Return the reasons of the dead letters."""
        return [letter.reason for letter in await self.store.dead_letters()]

    async def turns(self) -> None:
        """Send the waiting parts and fill the memories, then run a turn, until no lane is ready."""
        while await self.ready():
            sending = await self.store.lease(
                self.worker.context.worker, ["out"], pool=Platform.name, prefetch=prefetch(self.worker.context, "out")
            )
            remembering = await self.store.lease(self.worker.context.worker, ["memory"])
            if sending is not None:
                await self.worker.delivery.run(sending)
            if remembering is not None:
                await self.worker.memory.run(remembering)
            if sending is None and remembering is None:
                await self.worker.turn()


_numbers = itertools.count(1)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; a coroutine function is allowed."""
    looks = itertools.chain((0.001, 0.002, 0.004), itertools.repeat(0.008))  # a look may cost a question to the store
    async with asyncio.timeout(60):
        while not (await found if inspect.isawaitable(found := condition()) else found):
            await asyncio.sleep(next(looks))


async def killed(task: asyncio.Task[Any]) -> None:
    """Cancel a task, as at the end of a process."""
    task.cancel()
    await asyncio.wait({task})


def code_of(text: str) -> str:
    """Return the code named in a question."""
    return text.partition("**OK ")[2][:4]


def here(place: str) -> Address:
    return Address(channel="test", account="bot", place=place, group=place.startswith("#"))


def person_of(name: str) -> Person:
    return Person(channel="test", account="bot", user_id=name, name=name.capitalize())


def message(person: str, text: str, *, place: str | None = None, **more: Any) -> Message:
    command, words = None, text
    if text.startswith("/"):
        command, _, words = text[1:].partition(" ")
    where = here(place or person)
    return Message(
        event_ids=(f"message {next(_numbers)}",),
        address=where,
        person=person_of(person),
        text=words,
        command=command,
        **{"answers_bot": where.group, **more},  # so that groups hear it, as a bot is spoken to there
    )


def user_lines(script: ScriptedProvider) -> list[str]:
    """Return the texts of people in the last request to the model."""
    return [message.content for message in script.requests[-1].messages if message.role == "user"]


@contextlib.asynccontextmanager
async def rig(
    bot: ChannelAgent,
    files: Path,
    platform: Platform | None = None,
    *,
    limits: Limits | None = None,
    people: Sequence[str] = ("*",),
    budgets: str = "",
    **capabilities: Any,
) -> AsyncIterator[Rig]:
    """Yield a rig; `people` may talk."""
    store, platform = open_store("sqlite:///:memory:"), platform or Platform(**capabilities)
    await store.open()
    await Expiry(store, Retention()).run(await store.now())  # a started engine need not write when the first one is due
    wire = FaultyStore(store)
    worker = Worker(bot, wire, {Platform.name: platform}, files, limits=limits, people=people, budgets=budgets)
    worker.context.clock.observe(await store.now())
    await worker.context.load_languages(None)
    try:
        yield Rig(bot, store, wire, platform, files, worker)
    finally:
        await worker.engine.stop(0)
        await store.close()
