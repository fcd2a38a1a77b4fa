"""The engine: everything that takes work from the store, started and stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, cast

from channels import Address, Json, Message, Person, Reply
from channels.events import event_to_json
from gateway.access import Allowed
from gateway.agent import AgentResult
from gateway.channel_agent import NotAllowed, Outcome
from gateway.engine.actions import Actions
from gateway.engine.decisions import Decisions
from gateway.engine.delivery import Delivery
from gateway.engine.inbox import Inbox
from gateway.engine.leases import LEASE_SECONDS
from gateway.engine.outgoing import queue
from gateway.engine.results import Collected
from gateway.engine.shared import Shared, person_of
from gateway.engine.turns import Turns
from gateway.pending.desk import Say
from gateway.pending.reading import decides
from gateway.pending.tokens import make_action_id, token_sha256
from gateway.pending.transitions import may_approve, may_refuse
from gateway.store.base import Incoming, Kind, Lease, StoreError, Transaction
from gateway.tools.action import PendingAction

__all__ = ["Engine"]

log = logging.getLogger("askfirst.engine")

_AT_ONCE: dict[Kind, int] = {"turn": 64, "action": 32, "out": 64}
_LEASE_WAIT_SECONDS = 5.0
_STALE_POINTER_SECONDS = 2.0
_TICK_SECONDS = 1.0
_SWEEP_SECONDS = 3600.0
_STORE_AGAIN_SECONDS = 0.5


class Engine:
    """One process's part in the work. `work` starts the loops; without them `ask` runs what its call needs."""

    def __init__(self, shared: Shared, allowed: Allowed) -> None:
        self.shared = shared
        self._decisions = Decisions(shared)
        self.inbox = Inbox(shared, self._decisions, allowed)
        self._turns = Turns(shared, self._decisions)
        self._actions = Actions(shared)
        self._delivery = Delivery(shared)
        self._loops: list[asyncio.Task[None]] = []

    # ── running ──

    def start(self, role: Literal["all", "web", "worker"] = "all") -> None:
        """Start the loops: `web` only decides and keeps time, `worker` and `all` also execute."""
        works: list[Awaitable[None]] = [self._time()]
        if role != "web":
            works += [self._work("turn", self._turn), self._work("action", self._actions.run)]
            works += [self._work("out", self._delivery.run), self._sweep_files()]
        self._loops = [asyncio.ensure_future(work) for work in works]

    async def stop(self, grace_seconds: float = 20.0) -> None:
        """Take no more work, let what runs finish for so long, hand the rest back."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        await self.shared.tasks.drain(grace_seconds)

    async def _turn(self, lease: Lease) -> None:
        await self._turns.run(lease)

    async def _work(self, kind: Kind, run: Callable[[Lease], Awaitable[None]]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE[kind])

        async def one(lease: Lease) -> None:
            try:
                await run(lease)
            finally:
                slots.release()

        while True:
            await slots.acquire()
            lease = None
            try:
                lease = await self._lease(kind, wait_seconds=_LEASE_WAIT_SECONDS)
            except StoreError as error:
                log.warning("no %s work: %s", kind, type(error).__name__)
                await asyncio.sleep(_STORE_AGAIN_SECONDS)
            finally:
                if lease is None:
                    slots.release()
            if lease is not None:
                self.shared.tasks.start(one(lease), kind)

    async def _time(self) -> None:
        """Timers that fall due, and pointers that whoever stored them has left lying."""
        while True:
            wait = _TICK_SECONDS
            try:
                await self.due(_STALE_POINTER_SECONDS)
                wait = min(await self.shared.store.tick() or _TICK_SECONDS, _TICK_SECONDS)
            except StoreError as error:
                log.warning("no time: %s", type(error).__name__)
            await asyncio.sleep(max(wait, 0.01))

    async def _sweep_files(self) -> None:
        """Remove kept files whose stay is over."""
        while True:
            try:
                await self.shared.artifacts.sweep()
            except OSError as error:
                log.warning("kept files could not be swept: %s", error.strerror)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def due(self, older_than_seconds: float = 0.0) -> None:
        """Fire what has fallen due and work off the decisions it makes."""
        await self.shared.store.tick()
        await self._decisions.sweep(older_than_seconds)

    async def _lease(self, kind: Kind, *, only: str | None = None, wait_seconds: float = 0.0) -> Lease | None:
        shared = self.shared
        return await shared.store.lease(
            shared.worker, [kind], only=only, wait_seconds=wait_seconds, lease_seconds=LEASE_SECONDS
        )

    async def idle(self) -> bool:
        """Whether nothing is left to do this moment."""
        if len(self.shared.tasks):
            return False
        stats = await self.shared.store.stats()
        return not (stats.ready or stats.leased or stats.pointed)

    # ── for the bot's own code (the Runtime of gateway.channel_agent) ──

    async def ask(self, address: Address, person: Person, message: Message) -> AgentResult:
        """One message through everything, for a conversation that has no platform."""
        shared = self.shared
        conversation = shared.conversation(address)
        collected = await Collected.begin(shared, conversation)
        await self._settle_conversation(conversation, {})
        incoming = Incoming(
            conversation=conversation,
            event_ids=(f"app/{make_action_id()}",),
            body=cast("dict[str, Json]", event_to_json(message)),
            decides=decides(message),
        )
        await shared.store.accept([incoming])
        outcomes: dict[str, Outcome] = {}
        await self._settle_conversation(conversation, outcomes)
        return await collected.result(outcomes.get("last"))

    async def decide(
        self,
        person: str,
        intent: Literal["confirm", "cancel"],
        *,
        action_id: str | None,
        code: str | None,
        token: str | None,
    ) -> AgentResult:
        """Decide for a person whom the caller vouches for. Raises NotAllowed; nothing has changed then."""
        shared = self.shared
        action = await self._find(person, action_id=action_id, code=code, token=token)
        may = may_refuse if intent == "cancel" else may_approve
        if action is None or not may(action, person):
            raise NotAllowed(f"{person} has no such action to decide")
        conversation = action.conversation
        collected = await Collected.begin(shared, conversation)
        body: dict[str, Json] = {
            "kind": "decide",
            "action_id": action.pending_action_id,
            "intent": intent,
            "person": person,
        }
        event_ids = (f"decide/{make_action_id()}",)
        await shared.store.accept([Incoming(conversation=conversation, event_ids=event_ids, body=body, decides=True)])
        await self._settle_conversation(conversation, {})
        return await collected.result(Outcome(stop_reason="decided"))

    async def notify(self, address: Address, reply: Reply) -> None:
        shared = self.shared
        if address.channel not in shared.channels:
            raise ValueError(f"no channel {address.channel!r} is on: {address}")
        conversation = shared.conversation(address)
        parts = queue(shared.channels, conversation, address, [Say(reply=reply)])
        await shared.store.commit(Transaction(partition=shared.store.partition(conversation), parts=parts))

    async def _find(
        self, person: str, *, action_id: str | None, code: str | None, token: str | None
    ) -> PendingAction | None:
        store = self.shared.store
        person_of(person)
        if token is not None:
            keys = await store.scan(f"token/{token_sha256(token)}")
            action_id = str(cast("dict[str, Json]", keys[0][1].value)["action_id"]) if keys else None
        if action_id is not None:
            found = await store.scan(f"action/{action_id}")
            return PendingAction.from_json(found[0][1].value) if found else None
        actions = [PendingAction.from_json(record.value) for _, record in await store.scan("action/")]
        mine = [a for a in actions if code is not None and a.code == code.upper() and may_refuse(a, person)]
        return next((a for a in mine if a.open), mine[-1] if mine else None)

    async def _settle_conversation(self, conversation: str, outcomes: dict[str, Outcome]) -> None:
        """Run everything this conversation has to do now; with the loops running, they may do it."""
        shared = self.shared
        await shared.store.tick()
        while True:
            await self._decisions.decide(conversation)
            ran = False
            if (lease := await self._lease("turn", only=conversation)) is not None:
                ran = True
                outcome = await self._turns.run(lease)
                if outcome is not None:
                    outcomes["last"] = outcome
            for action_id in await self._approved(conversation):
                if (lease := await self._lease("action", only=action_id)) is not None:
                    ran = True
                    await self._actions.run(lease)
            if (lease := await self._lease("out", only=conversation)) is not None:
                ran = True
                await self._delivery.run(lease)
            if not ran:
                if not self._loops or not await self._busy(conversation):
                    return
                await asyncio.sleep(0.01)

    async def _approved(self, conversation: str) -> list[str]:
        desk = await self.shared.desk(conversation, "en")
        found = [desk.action(entry.action_id) for entry in desk.index.lately]
        return [a.pending_action_id for a in found if a is not None and a.state in ("approved", "running")]

    async def _busy(self, conversation: str) -> bool:
        """Whether this process's loops still work on it."""
        held = any(lane == conversation for _, lane in self.shared.held)
        return held or bool(await self._approved(conversation)) or bool(await self.shared.store.outbox(conversation))
