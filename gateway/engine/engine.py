"""The engine: everything that takes work from the store, started and stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, cast

from channels import Address, Json, Message, Person, Reply
from channels.direct import DirectChannel
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
from gateway.engine.results import Call, Calls
from gateway.engine.shared import Shared, person_of
from gateway.engine.turns import Turns
from gateway.observe import describe_error
from gateway.pending.desk import Say
from gateway.pending.reading import ReplyParser, decides
from gateway.pending.tokens import make_action_id, token_sha256
from gateway.pending.transitions import may_approve, may_refuse
from gateway.store.base import Incoming, Kind, Lease, Transaction
from gateway.tools.action import PendingAction, is_known_schema

__all__ = ["Engine"]

log = logging.getLogger("askfirst.engine")

_AT_ONCE: dict[Kind, int] = {"turn": 64, "action": 32, "out": 64}
_LEASE_WAIT_SECONDS = 5.0
_STALE_POINTER_SECONDS = 2.0
_TICK_SECONDS = 1.0
_SWEEP_SECONDS = 3600.0
_AGAIN_SECONDS = 0.5


class Engine:
    """One process's part in the work. `work` starts the loops; without them `ask` runs what its call needs."""

    def __init__(self, shared: Shared, allowed: Allowed) -> None:
        self.shared = shared
        self._decisions = Decisions(shared)
        self.inbox = Inbox(shared, self._decisions, allowed)
        self._turns = Turns(shared, self._decisions)
        self._actions = Actions(shared)
        self._delivery = Delivery(shared)
        self._calls = Calls(shared)
        self._parser = ReplyParser()
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
        call = self._calls.get(lease.lane)
        try:
            outcome = await self._turns.run(lease)
        except Exception as error:
            if call is None:
                raise
            call.awaits_turn, call.error = False, error
        else:
            if call is not None and outcome is not None:
                call.awaits_turn, call.outcome = False, outcome

    async def _work(self, kind: Kind, run: Callable[[Lease], Awaitable[None]]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE[kind])

        async def one(lease: Lease) -> None:
            try:
                await run(lease)
            finally:
                slots.release()

        async def take() -> float:
            await slots.acquire()
            lease = None
            try:
                lease = await self._lease(kind, wait_seconds=_LEASE_WAIT_SECONDS)
            finally:
                if lease is None:
                    slots.release()
            if lease is not None:
                self.shared.tasks.start(one(lease), kind)
            return 0.0

        await self._repeat(f"{kind} work", take)

    async def _time(self) -> None:
        """Timers that fall due, and pointers that whoever stored them has left lying."""

        async def tick() -> float:
            wait = await self.due(_STALE_POINTER_SECONDS)
            return _TICK_SECONDS if wait is None else min(max(wait, 0.01), _TICK_SECONDS)

        await self._repeat("timers", tick)

    async def _sweep_files(self) -> None:
        """Remove kept files whose stay is over."""

        async def sweep() -> float:
            await self.shared.artifacts.sweep()
            return _SWEEP_SECONDS

        await self._repeat("sweep of kept files", sweep)

    async def _repeat(self, name: str, step: Callable[[], Awaitable[float]]) -> None:
        """Do this for ever, each time after as many seconds as the step says. A failure is logged once, until it is
        over, and ends nothing."""
        failing = False
        while True:
            try:
                wait = await step()
                if failing:
                    log.warning("%s: goes on", name)
                failing = False
            except Exception as error:  # noqa: BLE001 - a loop that ended would be work that nobody does
                wait = _AGAIN_SECONDS
                if not failing:
                    log.warning("%s: %s", name, describe_error(error))
                failing = True
            await asyncio.sleep(wait)

    async def due(self, older_than_seconds: float = 0.0) -> float | None:
        """Fire what has fallen due and work off the decisions it makes; seconds until the next timer, or None."""
        wait = await self.shared.store.tick()
        await self._decisions.sweep(older_than_seconds)
        return wait

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
        """One message through everything, for a conversation that has no platform. Raises what ended its turn."""
        shared = self.shared
        intent = self._parser.classify(message.text, shared.language(person))
        if message.reply_to is not None and intent != "unclear":
            return await self.decide(str(person), intent, action_id=message.reply_to, code=None, token=None)
        decisive = decides(message)
        async with self._calls.begin(shared.conversation(address)) as call:
            await self._settle(call)
            incoming = Incoming(
                conversation=call.conversation,
                event_ids=(f"app/{make_action_id()}",),
                body=cast("dict[str, Json]", event_to_json(message)),
                decides=decisive,
            )
            call.outcome = call.error = None
            call.awaits_turn = not decisive
            await shared.store.accept([incoming])
            await self._settle(call)
            return await call.result()

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
        action = await self._find(person, action_id=action_id, code=code, token=token)
        may = may_refuse if intent == "cancel" else may_approve
        if action is None or not may(action, person):
            raise NotAllowed(f"{person} has no such action to decide")
        body: dict[str, Json] = {
            "kind": "decide",
            "action_id": action.pending_action_id,
            "intent": intent,
            "person": person,
            "language": action.language,
        }
        async with self._calls.begin(action.conversation) as call:
            event_ids = (f"decide/{make_action_id()}",)
            incoming = Incoming(conversation=call.conversation, event_ids=event_ids, body=body, decides=True)
            await self.shared.store.accept([incoming])
            await self._settle(call)
            call.outcome = Outcome(stop_reason="decided")
            return await call.result()

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
            action_id = str(cast("dict[str, Json]", keys[0][1].value)["action_id"]) if keys else ""
        found = await store.scan(f"action/{action_id or ''}")
        actions = [PendingAction.from_json(record.value) for _, record in found if is_known_schema(record.value)]
        if action_id is not None:
            return next((action for action in actions if action.pending_action_id == action_id), None)
        mine = [a for a in actions if code is not None and a.code == code.upper() and may_refuse(a, person)]
        return next((a for a in mine if a.open), mine[-1] if mine else None)

    async def _settle(self, call: Call) -> None:
        """Run everything this conversation has to do now; with the loops running, they may do it."""
        await self.shared.store.tick()
        while True:
            await self._decisions.decide(call.conversation)
            ran = False
            if (lease := await self._lease("turn", only=call.conversation)) is not None:
                ran = True
                await self._turn(lease)
            for action_id in await self._approved(call.conversation):
                if (lease := await self._lease("action", only=action_id)) is not None:
                    ran = True
                    await self._actions.run(lease)
            if (lease := await self._lease("out", only=call.conversation)) is not None:
                ran = True
                await self._delivery.run(lease)
            if not ran:
                if not await self._busy(call):
                    return
                await asyncio.sleep(0.01)

    async def _approved(self, conversation: str) -> list[str]:
        desk = await self.shared.desk(conversation, "en")
        found = [desk.action(entry.action_id) for entry in desk.index.lately]
        return [a.pending_action_id for a in found if a is not None and a.state in ("approved", "running")]

    async def _busy(self, call: Call) -> bool:
        """Whether what this call waits for is still to come, from a loop of this process or once a lease has lapsed.

        What a platform is to be sent is waited for by nobody: it may be down for hours.
        """
        conversation = call.conversation
        if call.awaits_turn:
            return True
        if not self._loops:
            return False
        if await self._approved(conversation):
            return True
        if not conversation.startswith(f"{self.shared.bot.name}/{DirectChannel.name}:"):
            return False
        held = any(lane == conversation for _, lane in self.shared.held)
        return held or bool(await self.shared.store.outbox(conversation))
