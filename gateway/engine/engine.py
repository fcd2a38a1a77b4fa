"""The engine: everything that takes work from the store, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Literal, cast

from channels import Address, Json, Message, Person, Reply
from channels.direct import DirectChannel
from gateway.access.suppression import check_suppression
from gateway.agent import AgentResult
from gateway.channel_agent import NotAllowed
from gateway.engine.calls import Call, Calls, TurnResult
from gateway.engine.concurrency import WorkerPool
from gateway.engine.context import EngineContext, person_of
from gateway.engine.decisions import Decisions
from gateway.engine.delivery.sender import PartSender
from gateway.engine.execution.executor import MOST_OF_A_TOOL, ActionExecutor
from gateway.engine.intake.inbox import Inbox
from gateway.engine.leases import PREFETCH
from gateway.engine.lookup import find_by_code, find_by_id, find_by_token
from gateway.engine.parts import schedule_reply
from gateway.engine.turns.runner import TurnRunner
from gateway.observe import describe_error
from gateway.pending.actions import OutgoingReply
from gateway.pending.prompt import code_only
from gateway.pending.reading import decides, read_words, reads_as_answer
from gateway.pending.seed.running import sweep_executors
from gateway.pending.tokens import make_action_id
from gateway.pending.transitions import may_approve, may_refuse
from gateway.store.base import Incoming, Kind, Lease, StoreError, StoreUnavailable, Transaction
from gateway.tools.pending_action import PendingAction

__all__ = ["Engine"]

log = logging.getLogger("askfirst.engine")

_ACTIONS, _SENDS = 2 * MOST_OF_A_TOOL, 64
"""So many of them at once."""
_TAKERS = 16
"""So many ask for lanes at once: one after the other they would wait for each other's commit or round trip."""
_LEASE_WAIT_SECONDS = 30.0
_STALE_POINTER_SECONDS = 2.0
_LINES_LOOKED_AT = 20
"""Of a visible log, from its end, to find what was said last."""
_TICK_SECONDS = 1.0
_SWEEP_SECONDS = 3600.0
_DEAD_SECONDS = 600.0
_AGAIN_SECONDS = 0.5
_LEAST_PATIENCE_SECONDS, _MOST_PATIENCE_SECONDS = 0.01, 0.5
"""How long a call waits for news before it looks again: at first, and in the end."""


class Engine:
    """One process's part in the work. `work` starts the loops; without them `ask` runs what its call needs."""

    def __init__(self, context: EngineContext) -> None:
        self.context = context
        self._decisions = Decisions(context)
        self.inbox = Inbox(context, self._decisions)
        self._turns = TurnRunner(context, self._decisions)
        self._actions = ActionExecutor(context)
        self._delivery = PartSender(context)
        self._calls = Calls(context)
        self._loops: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        """The loops that are stopped last."""
        self._rehearses = False

    # ── running ──

    def start(self, role: Literal["all", "web", "worker"] = "all") -> None:
        """Start the loops: `web` only decides and keeps time, `worker` and `all` also execute."""
        works: list[Awaitable[None]] = [self._time()]
        if role != "web":
            most = self.context.limits.turns.all or 1
            turns, actions = self._crew("turn", most, self._turn), self._crew("action", _ACTIONS, self._action)
            works += [self._work("turn", turns), self._work("action", actions), self._sweep_files()]
            works.append(self._sweep_executors())
            # Each channel's outboxes are a pool: a platform that is slow holds up its own alone.
            self.context.sending = {
                channel: self._crew("out", _SENDS, self._delivery.run) for channel in self.context.channels
            }
            sends = [self._work("out", crew, pool=channel) for channel, crew in self.context.sending.items()]
            self._sending = [asyncio.ensure_future(send) for send in sends]
        self._loops = [asyncio.ensure_future(work) for work in works]

    def rehearse(self, instead: Callable[[PendingAction], None]) -> None:
        """Run no confirmed action from now on: `instead` is told of each, and it ends as done.

        The bot's own `on_outcome` hears of none.
        """
        self._rehearses = True
        self._actions.rehearse(instead)

    async def stop(self, grace_seconds: float = 20.0) -> None:
        """Take no more work, let what runs finish for so long and send what it says, hand the rest back."""
        loops, sending = self._loops, self._sending
        self._loops, self._sending = [], []
        await _cancelled(loops)
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(grace_seconds):
                await self.context.tasks.ended()
                await _cancelled(sending)
                if sending:
                    await self._send_the_rest()
                if len(self._actions.late):
                    await self._actions.late.ended()
                    if sending:
                        await self._send_the_rest()
        await _cancelled(sending)
        self.context.sending = {}
        await self._actions.late.drain(0)
        await self.context.tasks.drain(0)

    def _crew(self, kind: Kind, at_once: int, run: Callable[[Lease], Awaitable[None]]) -> WorkerPool:
        return WorkerPool(self.context.tasks, kind, at_once, run)

    async def _send_the_rest(self) -> None:
        """Until no outbox is ready: what waits for a platform that is down stays."""
        found = True
        while found:
            found = False
            for channel in self.context.channels:
                while (lease := await self._lease("out", pool=channel)) is not None:
                    self.context.tasks.start(self._delivery.run(lease), "out")
                    found = True
            await self.context.tasks.ended()

    async def _turn(self, lease: Lease) -> None:
        call = self._calls.get(lease.lane)
        try:
            outcome = await self._turns.run(lease)
        except Exception as error:
            if call is None:
                raise
            call.error = error
        else:
            if call is not None and outcome is not None:
                call.told = TurnResult.of(outcome)

    async def _action(self, lease: Lease) -> None:
        ended = await self._actions.run(lease)
        if ended is not None and not self._rehearses:  # a callback that hangs keeps nobody's place
            self.context.tasks.start(self.context.bot.tell_outcome(ended), "on_outcome")

    async def _work(self, kind: Kind, crew: WorkerPool, *, pool: str = "") -> None:
        """Have its crew take lanes for ever."""

        async def take() -> float:
            await crew.take(lambda: self._lease(kind, pool=pool, wait_seconds=_LEASE_WAIT_SECONDS))
            return 0.0

        await self._repeat(f"{pool or kind} work", take, times=_TAKERS)

    async def _time(self) -> None:
        """Timers that fall due, and pointers that whoever stored them has left lying."""

        async def tick() -> float:
            wait = await self.due(_STALE_POINTER_SECONDS)
            return _TICK_SECONDS if wait is None else min(max(wait, 0.01), _TICK_SECONDS)

        await self._repeat("timers", tick)

    async def _sweep_files(self) -> None:
        """Remove kept files whose stay is over."""

        async def sweep() -> float:
            # By the store's clock, which follows no step of the machine's; never ahead of that one.
            await self.context.artifacts.sweep(min(await self.context.clock.now(), self.context.wall_clock()))
            return _SWEEP_SECONDS

        await self._repeat("sweep of kept files", sweep)

    async def _sweep_executors(self) -> None:
        """End what a pending store's process was running when it died."""

        async def sweep() -> float:
            for action in await sweep_executors(self.context.store, self.context.keyring):
                self.context.alarms.sound(action, "unknown")
            return _DEAD_SECONDS

        await self._repeat("sweep of executors", sweep)

    async def _repeat(self, name: str, step: Callable[[], Awaitable[float]], *, times: int = 1) -> None:
        """Do this for ever, each time after as many seconds as the step says, and `times` beside each other. A failure
        is logged once, until it is over, and ends nothing."""
        failing = False

        async def repeat() -> None:
            nonlocal failing
            while True:
                try:
                    wait = await step()
                    if failing:
                        log.warning("%s: goes on", name)
                    failing = False
                except Exception as error:  # noqa: BLE001 - a loop that ended would be work that nobody does
                    wait = _AGAIN_SECONDS
                    if not failing:
                        why = error if isinstance(error, StoreUnavailable) else describe_error(error)
                        log.warning("%s: %s", name, why)
                    failing = True
                await asyncio.sleep(wait)

        await asyncio.gather(*(repeat() for _ in range(times)))

    async def due(self, older_than_seconds: float = 0.0) -> float | None:
        """Fire what has fallen due and work off the decisions it makes; seconds until the next timer, or None."""
        wait = await self.context.store.run_timers()
        await self.context.clock.keep()
        await self._decisions.sweep(older_than_seconds)
        return wait

    async def _lease(
        self, kind: Kind, *, only: str | None = None, pool: str = "", wait_seconds: float = 0.0
    ) -> Lease | None:
        context = self.context
        return await context.store.lease(
            context.worker,
            [kind],
            only=only,
            pool=pool,
            wait_seconds=wait_seconds,
            lease_seconds=context.lease_seconds,
            prefetch=PREFETCH[kind],
        )

    async def idle(self) -> bool:
        """Whether nothing is left to do this moment."""
        if len(self.context.tasks):
            return False
        stats = await self.context.store.stats()
        return not (stats.ready or stats.leased or stats.pointed)

    # ── for the bot's own code (the Runtime of gateway.channel_agent) ──

    async def ask(self, address: Address, person: Person, message: Message) -> AgentResult:
        """One message through everything, for a conversation that has no platform. Raises what ended its turn."""
        context = self.context
        if message.reply_to is not None:
            action = await find_by_id(context, message.reply_to)
            verb = action.verb if action is not None else None
            asked = action.language if action is not None else "en"
            await context.read_words(person.language, asked)
            intent = read_words(message.text, (context.language(person, asked), asked), verb)
            needs_code = action is not None and intent == "confirm" and code_only(action)
            if intent != "unclear" and not needs_code:
                return await self.decide(str(person), intent, action_id=message.reply_to, code=None, token=None)
        message_id = f"app/{make_action_id()}"
        await context.read_words(person.language)
        if reads_as_answer(message.text, context.language(person)):  # it is about what was said before the call
            message = replace(message, after=await self._last_said(context.conversation(address)))
        async with self._calls.begin(context.conversation(address)) as call:
            await self._settle(call)
            message = replace(message, message_id=message_id)
            incoming = Incoming(
                conversation=call.conversation,
                event_ids=(message_id,),
                body=context.stamped_event(call.conversation, message, await context.clock.now()),
                decides=decides(message),
            )
            call.told = call.error = None
            await context.store.accept([incoming])
            await self._settle(call)
            if call.told is None and call.error is None:
                await call.ask_around(message_id)
            return await call.result()

    async def _last_said(self, conversation: str) -> str | None:
        """Return the id of the newest message of the bot in the visible log of a conversation."""
        entries = await self.context.store.read(self.context.key(conversation, "visible"), last=_LINES_LOOKED_AT)
        lines = [cast("dict[str, Json]", entry.value) for entry in entries]
        said = [line for line in lines if line["from"] == "bot" and line["edits"] is None]
        return cast("str | None", said[-1]["message_id"]) if said else None

    async def decide(
        self,
        person: str,
        intent: Literal["confirm", "cancel"],
        *,
        action_id: str | None,
        code: str | None,
        token: str | None,
        conversation: str | None = None,
    ) -> AgentResult:
        """Decide for a person whom the caller vouches for. Raises NotAllowed; nothing has changed then."""
        person = str(person_of(person))
        action = await self._find(person, action_id=action_id, code=code, token=token, conversation=conversation)
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
            event_id = f"decide/{make_action_id()}"
            body = self.context.stamped(
                call.conversation, {**body, "event_id": event_id}, await self.context.clock.now()
            )
            incoming = Incoming(conversation=call.conversation, event_ids=(event_id,), body=body, decides=True)
            await self.context.store.accept([incoming])
            await self._settle(call)
            call.told = TurnResult(stop_reason="decided")
            return await call.result()

    async def notify(self, address: Address, reply: Reply, *, after_seconds: float = 0.0) -> None:
        """Raises ValueError when its channel is off, OptedOut and Unreachable."""
        context = self.context
        if address.channel not in context.channels:
            raise ValueError(f"no channel {address.channel!r} is on: {address}")
        conversation = context.conversation(address)
        await check_suppression(context.store, conversation)
        transaction = Transaction(partition=context.store.partition(conversation))
        if after_seconds:
            due = await context.store.now() + timedelta(seconds=after_seconds)
            transaction.timers = [schedule_reply(context.keyring, conversation, address, reply, due)]
        else:
            transaction.parts = context.parts.render(
                conversation, address, [OutgoingReply(reply=reply)], cause="notify"
            )
        await context.store.commit(transaction)

    async def _find(
        self, person: str, *, action_id: str | None, code: str | None, token: str | None, conversation: str | None
    ) -> PendingAction | None:
        if token is not None:
            return await find_by_token(self.context, token, conversation)
        if code is not None:
            return await find_by_code(self.context, person, code.upper(), conversation)
        return await find_by_id(self.context, action_id or "", conversation)

    async def _settle(self, call: Call) -> None:
        """Run everything this conversation has to do now; the loops may do it, and those of another process too."""
        await self.context.store.run_timers()
        patience = _LEAST_PATIENCE_SECONDS
        while True:
            await self._decisions.decide(call.conversation)
            ran = False
            if (lease := await self._lease("turn", only=call.conversation)) is not None:
                ran = True
                await self._turn(lease)
            for action_id in await self._approved(call.conversation):
                if (lease := await self._lease("action", only=action_id)) is not None:
                    ran = True
                    ended = await self._actions.run(lease)
                    if ended is not None and not self._rehearses:
                        await self.context.bot.tell_outcome(ended)
            if (lease := await self._lease("out", only=call.conversation)) is not None:
                ran = True
                await self._delivery.run(lease)
            if not ran:
                if not await self._busy(call.conversation):
                    return
                patience = min(2 * patience, _MOST_PATIENCE_SECONDS)
            if ran or await call.hear(patience):
                patience = _LEAST_PATIENCE_SECONDS

    async def _approved(self, conversation: str) -> list[str]:
        """What was confirmed there and has not ended, but for what waits for a channel that is off here."""
        context, key = self.context, self.context.key(conversation, "open")
        if not context.read_index(conversation, (await context.store.get([key]))[key]).index.going:
            return []
        actions = await context.actions(conversation)
        running = [action for action in actions.by_id.values() if action.state in ("approved", "running")]
        here = [a for a in running if a.address is None or a.address.channel in self.context.channels]
        return [action.pending_action_id for action in here]

    async def _busy(self, conversation: str) -> bool:
        """Whether something a call waits for is still to come, from a loop or once a lease has lapsed.

        What a platform is to be sent is waited for by nobody: it may be down for hours.
        """
        if await self._approved(conversation):
            return True
        if not conversation.startswith(f"{self.context.bot.name}/{DirectChannel.name}:"):
            return False
        if await self.context.store.has_work(conversation):
            return True
        return any(lane == conversation for _, lane in self.context.held)


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
