"""The processes of a world, and their platform."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from channels import (
    Address,
    Ambiguous,
    Capabilities,
    Event,
    Message,
    Parsed,
    Part,
    Receipt,
    Reply,
    Unavailable,
    Undeliverable,
    WebhookRequest,
    WebhookResponse,
)
from gateway.access import AllowList
from gateway.artifacts import ArtifactStore
from gateway.engine.concurrency import WorkerPool
from gateway.engine.context import EngineContext
from gateway.engine.decisions.lane import Decisions
from gateway.engine.delivery.sender import PartSender
from gateway.engine.execution.executor import ActionExecutor
from gateway.engine.intake.inbox import Inbox
from gateway.engine.leases import prefetch
from gateway.engine.memory.jobs import MemoryRunner
from gateway.engine.turns.runner import TurnRunner
from gateway.observe.teller import Teller
from gateway.pending.seal import Keyring
from gateway.store.base import Store
from gateway.store.errors import StoreError
from gateway.store.types import Kind
from gateway.testing.doubles import FaultyStore

if TYPE_CHECKING:
    from tests.machine.world import World

__all__ = ["KEYRING", "PLATFORMS", "Mood", "Platform", "Worker"]

Mood = Literal["up", "down", "lost answer", "blocked"]
"""The fate of the next message. Only a prompt is ever blocked."""


KEYRING = Keyring([b"a key of more than 16 bytes"])


_ROOMY = Capabilities(max_text=100_000, buttons=100, button_label=100, edit=True, bare_yes="ordered")
PLATFORMS = {
    "roomy": _ROOMY,
    "two questions": replace(_ROOMY, buttons=4, edit=False),
    "one question": replace(_ROOMY, buttons=3, edit=False),
}
"""The platforms by the number of buttons in a message. Only the first changes shown messages."""


class Platform:
    """Shows each part to the witness. In a bad mood the platform refuses the part or loses the answer."""

    name: ClassVar[str] = "test"

    def __init__(self, world: World) -> None:
        self._world = world
        self.capabilities = _ROOMY
        self.moods: list[Mood] = []
        """The moods for the next messages, one each; then the platform is up."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Literal["webhook", "polling"]) -> Self:
        raise ValueError("made by the world it is in")

    async def start(self, http: Any) -> None:
        """Need no resource."""

    async def close(self) -> None:
        """Hold no resource."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Accept: there is no webhook."""

    def parse(self, request: WebhookRequest) -> Parsed:
        return Parsed(events=(), response=WebhookResponse(status=404))

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        part = Part(call="show", arguments={"text": reply.text, "edits": reply.edits}, buttons=reply.buttons)
        return [part] if len(reply.buttons) <= self.capabilities.buttons else [part, part]

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return message.after is not None and int(message.after) >= int(str(receipt.message_id))

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        mood = self.moods.pop(0) if self.moods else "up"
        self._world.witness.setbacks += mood != "up"
        if mood == "down":
            raise Unavailable("503")
        if mood == "blocked" and part.buttons:
            self._world.does_not_change(part)
            raise Undeliverable("403")
        number = await self._world.saw(address, part, lost=mood == "lost answer")
        if mood == "lost answer":
            raise Ambiguous("no answer")
        return Receipt(message_id=str(number))


class Worker:
    """One process."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.wire = FaultyStore(world.store)
        self.context = EngineContext(
            store=cast("Store", self.wire),
            channels={"test": cast("Any", world.platform)},
            bot=world.bot,
            allowed=AllowList(["*"]),
            keyring=KEYRING,
            artifacts=ArtifactStore(world.files, [b"a key of more than 16 bytes"], public_url=None, now=_now),
            events=Teller(),
            worker=name,
        )
        self.decisions = Decisions(self.context)
        self.inbox = Inbox(self.context, self.decisions)
        turns, delivery = TurnRunner(self.context, self.decisions), PartSender(self.context)
        self.actions = actions = ActionExecutor(self.context)
        self.context.sending = {"test": WorkerPool(self.context.tasks, "out", 64, delivery.run)}
        self._runs: dict[Kind, Callable[[Any], Awaitable[Any]]] = {
            "turn": turns.run,
            "memory": MemoryRunner(self.context).run,
            "action": actions.run,
            "out": delivery.run,
        }

    async def take(self, event: Event) -> bool:
        """Deliver an event once. Returns False if the platform will deliver the event again."""
        try:
            parsed = Parsed(events=(event,), response=WebhookResponse())
            await self.inbox.accept(self.context.channels["test"], parsed)
        except StoreError:
            return False
        await self.idle()
        return True

    async def idle(self) -> None:
        while len(self.context.tasks):
            await asyncio.sleep(0.0002)

    async def keep_time(self) -> None:
        try:
            await self.context.store.run_timers()
            await self.decisions.sweep(0.0)
        except StoreError:
            pass

    async def work(self, kind: Kind) -> bool:
        """Take one lane and run it. Returns False if there was none."""
        try:
            lease = await self.context.store.lease(
                self.context.worker, [kind], pool=Platform.name, prefetch=prefetch(self.context, kind)
            )
            if lease is not None:
                self._world.filing = self
                await self._runs[kind](lease)
                await self.idle()
        except StoreError:
            return True
        return lease is not None


def _now() -> datetime:
    return datetime.now(UTC)
