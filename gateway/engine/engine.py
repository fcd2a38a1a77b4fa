"""The engine: the loops that take work from the store, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Literal

from gateway.engine.concurrency import WorkerPool
from gateway.engine.context import EngineContext
from gateway.engine.decisions.lane import Decisions
from gateway.engine.delivery.sender import PartSender
from gateway.engine.execution.executor import MOST_OF_A_TOOL, ActionExecutor
from gateway.engine.intake.inbox import Inbox
from gateway.engine.leases import lease_lane
from gateway.engine.memory.jobs import MemoryRunner
from gateway.engine.runtime import BotRuntime
from gateway.engine.turns.runner import TurnRunner
from gateway.logs import describe_error
from gateway.pending.seed.running import sweep_executors
from gateway.privacy.expiry import Expiry
from gateway.store.errors import StoreError, StoreUnavailable
from gateway.store.types import Kind, Lease
from gateway.tools.pending_action import PendingAction
from gateway.wording import speaking

log = logging.getLogger("askfirst.engine")

_ACTIONS, _SENDS = 2 * MOST_OF_A_TOOL, 64
"""Concurrent actions, and concurrent outboxes of a channel."""
_TAKERS = 16
"""Concurrent requests for a lease. In sequence, each request would wait for the commit or round trip before."""
_LEASE_WAIT_SECONDS = 30.0
_STALE_POINTER_SECONDS = 2.0
_TICK_SECONDS = 1.0
_SWEEP_SECONDS = 3600.0
_FILES_SECONDS = 600.0
"""Interval of the sweep of kept files, short enough to remove an unnamed upload within an hour."""
_DEAD_SECONDS = 600.0
_AGAIN_SECONDS = 0.5
_STUCK_SECONDS = 60.0
"""The time without an ended turn before readiness reports the problem."""
_SLOW_STORE_SECONDS = (0.1, 0.4, 1.0)
"""The backoff of the final sending after an unanswered request to the store."""


class Engine:
    """The work of a process. `start` starts the loops. Without loops, the calls of `runtime` do the work themselves."""

    def __init__(
        self,
        context: EngineContext,
        *,
        actions: ActionExecutor | None = None,
        sends: int = _SENDS,
        takers: int = _TAKERS,
    ) -> None:
        self.context = context
        self._sends, self._takers = sends, takers
        self._decisions = Decisions(context)
        context.decide = self._decisions.decide
        self.inbox = Inbox(context, self._decisions)
        self._actions = actions or ActionExecutor(context)
        self._delivery = PartSender(context)
        turns = TurnRunner(context, self._decisions)
        self._memory = memory = MemoryRunner(context)
        self.runtime = BotRuntime(context, self._decisions, turns, memory, self._actions, self._delivery)
        """The engine for the bot's own code."""
        self._turns: WorkerPool | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        """The loops of the outboxes, stopped last."""

    # ── running ──

    def start(self, role: Literal["all", "web", "worker"] = "all") -> None:
        """Start the loops.

        The role `web` only decides and fires timers; `worker` and `all` also run turns and actions and send.
        """
        works: list[Awaitable[None]] = [self._time()]
        sends: list[Awaitable[None]] = []
        if role != "web":
            most = self.context.rules.limits.turns.all or 1
            self._turns = turns = WorkerPool(self.context.tasks, "turn", most, self.runtime.work_lane, yields=True)
            actions = self._pool("action", _ACTIONS, self._action)
            # The work on memories has workers of its own, so that it delays no answer.
            memories = WorkerPool(self.context.tasks, "memory", self._memory.most, self._memory.run, yields=True)
            works += [self._work("turn", turns), self._work("memory", memories), self._work("action", actions)]
            works += [self._sweep_files(), self._sweep_executors(), self._expire()]
            # Each channel has a pool of its own, so that a slow platform delays no other.
            self.context.sending = {
                channel: self._pool("out", self._sends, self._delivery.run) for channel in self.context.channels
            }
            sends = [self._work("out", workers, pool=channel) for channel, workers in self.context.sending.items()]
        with speaking(self.context.bot.wording):
            self._sending = [asyncio.ensure_future(send) for send in sends]
            self._loops = [asyncio.ensure_future(work) for work in works]

    def rehearse(self, instead: Callable[[PendingAction], None]) -> None:
        """Run no confirmed action from now on. `instead` is called with each action, and the action ends as done.

        The bot's own `on_outcome` is not called.
        """
        self._actions.rehearse(instead)

    async def stop(self, grace_seconds: float = 20.0) -> None:
        """Take no more work, and end the running work.

        Running work may finish and send the replies within the grace time. The rest is cancelled.
        """
        loops, sending = self._loops, self._sending
        self._loops, self._sending = [], []
        await _cancelled(loops)
        with contextlib.suppress(TimeoutError, StoreError), speaking(self.context.bot.wording):
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
        await self.context.events.drain()

    def _pool(self, kind: Kind, at_once: int, run: Callable[[Lease], Awaitable[None]]) -> WorkerPool:
        return WorkerPool(self.context.tasks, kind, at_once, run)

    async def _send_the_rest(self) -> None:
        """Send until no outbox is ready. Parts for an unavailable platform stay."""
        found = True
        while found:
            found = False
            for channel in self.context.channels:
                while (lease := await self._ready_outbox(channel)) is not None:
                    self.context.tasks.start(self._delivery.run(lease), "out")
                    found = True
            await self.context.tasks.ended()

    async def _ready_outbox(self, channel: str) -> Lease | None:
        """Lease a ready outbox of a channel, or return None. An unavailable store is asked again, with a backoff."""
        for wait_seconds in _SLOW_STORE_SECONDS:
            try:
                return await lease_lane(self.context, "out", pool=channel)
            except StoreUnavailable:
                await asyncio.sleep(wait_seconds)
        return await lease_lane(self.context, "out", pool=channel)

    async def _action(self, lease: Lease) -> None:
        ended = await self._actions.run(lease)
        if ended is not None and not self._actions.rehearses:  # a task, so that a callback that hangs holds no worker
            self.context.tasks.start(self.context.bot.tell_outcome(ended), "on_outcome")

    async def _work(self, kind: Kind, workers: WorkerPool, *, pool: str = "") -> None:
        """Lease lanes of this kind for a worker pool, for ever."""
        lease = partial(lease_lane, self.context, kind, pool=pool, wait_seconds=_LEASE_WAIT_SECONDS)

        async def take() -> float:
            await workers.take(lease)
            return 0.0

        await self._repeat(f"{pool or kind} work", take, times=self._takers)

    async def _time(self) -> None:
        """Fire due timers for ever, and work the pointers left behind by other processes."""

        async def tick() -> float:
            wait = await self.due(_STALE_POINTER_SECONDS)
            return _TICK_SECONDS if wait is None else min(max(wait, 0.01), _TICK_SECONDS)

        await self._repeat("timers", tick)

    async def _sweep_files(self) -> None:
        """Remove expired files for ever."""

        async def sweep() -> float:
            await self.context.artifacts.sweep(await self._surely_passed())
            return _FILES_SECONDS

        await self._repeat("sweep of kept files", sweep)

    async def _expire(self) -> None:
        """Remove expired lines and dead letters for ever."""
        expiry = Expiry(self.context.store, self.context.rules.retention)

        async def sweep() -> float:
            await expiry.run(await self._surely_passed())
            return _SWEEP_SECONDS

        await self._repeat("sweep of expired data", sweep)

    async def _surely_passed(self) -> datetime:
        """Return the earlier of the store's time and this machine's time.

        The store's clock does not follow steps of this machine's clock.
        """
        return min(await self.context.clock.now(), self.context.wall_clock())

    async def _sweep_executors(self) -> None:
        """End the actions left running by dead processes of a pending store, for ever."""

        async def sweep() -> float:
            for action in await sweep_executors(self.context.store, self.context.keyring):
                self.context.alarms.sound(action, "unknown")
            return _DEAD_SECONDS

        await self._repeat("sweep of executors", sweep)

    async def _repeat(self, name: str, step: Callable[[], Awaitable[float]], *, times: int = 1) -> None:
        """Repeat a step for ever, in `times` concurrent loops. The step returns the seconds until the next step.

        A failure ends no loop. Failures are logged once, until a step succeeds again. A cancellation waits for the
        end of all loops: each may still have to give a lease back.
        """
        failing = False

        async def repeat() -> None:
            nonlocal failing
            while True:
                try:
                    wait = await step()
                    if failing:
                        log.warning("%s: goes on", name)
                    failing = False
                except Exception as error:  # noqa: BLE001 - the work of a loop that ended would not be done
                    wait = _AGAIN_SECONDS
                    if not failing:
                        why = error if isinstance(error, StoreUnavailable) else describe_error(error)
                        log.warning("%s: %s", name, why)
                    failing = True
                await asyncio.sleep(wait)

        async with asyncio.TaskGroup() as group:
            for _ in range(times):
                group.create_task(repeat())

    async def due(self, older_than_seconds: float = 0.0) -> float | None:
        """Fire the due timers and work the due decisions. Return the seconds until the next timer, or None."""
        with speaking(self.context.bot.wording):
            wait = await self.context.store.run_timers()
            await self.context.clock.keep()
            await self._decisions.sweep(older_than_seconds)
        return wait

    async def stuck(self) -> str | None:
        """Return a report if events wait and no turn of this process has ended for a minute; else None.

        Raises StoreError.
        """
        seconds = self._turns.stuck_seconds() if self._turns is not None else 0.0
        if seconds < _STUCK_SECONDS or not (waiting := (await self.context.store.stats()).waiting):
            return None
        return f"none has ended for {seconds:.0f} s, and {waiting} events wait: see whether the model answers"

    async def idle(self) -> bool:
        """Return True if no work is ready or running in the whole store."""
        if len(self.context.tasks):
            return False
        stats = await self.context.store.stats()
        return not (stats.ready or stats.leased or stats.pointed)


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
