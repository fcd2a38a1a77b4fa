"""Leases of running work: taken with a prefetch, renewed, and read for signals. A lost lease cancels the work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from channels import Json
from gateway.engine.concurrency import DelayedTask
from gateway.engine.context import EngineContext
from gateway.memory import lines_read
from gateway.observe.events import LeaseLost, LeaseTakenOver
from gateway.store.clock_steps import elapsed_seconds
from gateway.store.errors import Fenced, StoreError
from gateway.store.types import Kind, Lease, Prefetch
from gateway.stored import keys

log = logging.getLogger("askfirst.leases")

BEATS = 3
"""Renewals within the life of a lease: two may fail before the lease is lost."""


def prefetch(context: EngineContext, kind: Kind) -> Prefetch:
    """Return the records and the log to read with a lease of this kind of lane.

    A turn reads only the lines of the transcript needed by the bot's memory.
    """
    match kind:
        case "turn":
            last = lines_read(context.bot.agent.memory)
            return Prefetch(records=(keys.INDEX, *context.turn_reads), log=keys.TRANSCRIPT, last=last)
        case "memory":
            return Prefetch()
        case "out":
            return Prefetch(records=(keys.INDEX,))
        case "action":
            return Prefetch(records=(keys.ACTION,))


async def lease_lane(
    context: EngineContext, kind: Kind, *, only: str | None = None, pool: str = "", wait_seconds: float = 0.0
) -> Lease | None:
    """Lease the longest-ready lane of this kind, with a prefetch. Return None when no lane is ready.

    `only`: the single wanted lane. `pool`: the channel of the outboxes. Raises StoreError.
    """
    return await context.store.lease(
        context.worker,
        [kind],
        only=only,
        pool=pool,
        wait_seconds=wait_seconds,
        lease_seconds=context.lease_seconds,
        prefetch=prefetch(context, kind),
    )


async def shielded_commit(work: Awaitable[object]) -> None:
    """Await the last commit of cancelled work, shielded from further cancellation.

    Fenced is ignored: the lease is gone then.
    """

    async def unless_gone() -> None:
        with contextlib.suppress(Fenced):
            await work

    await asyncio.shield(unless_gone())


class HeldLease:
    """A lease that a task renews while the body of a `with` runs. The body belongs to a single task.

    A lost lease cancels the body and raises Fenced. An unanswered renewal is no loss: after a takeover by another
    worker, the store refuses the body's commits. The store cannot refuse effects outside the store, so the body calls
    `make_sure` before each outside effect.

    `on_signal` is called with each signal to the lane.
    """

    def __init__(self, context: EngineContext, lease: Lease, on_signal: Callable[[Json], None] | None = None) -> None:
        self._context, self.lease, self._on_signal = context, lease, on_signal
        self.ends = False
        """True from the start of the commit releasing this lease. A renewal refused from then on is no loss."""
        self._every = context.lease_seconds / BEATS
        self._sure_until = lease.sure_until
        self._lost: Fenced | None = None
        self._wake = asyncio.Event()

    def __enter__(self) -> Self:
        body = asyncio.current_task()
        if body is None:
            raise RuntimeError("a lease is held by a task")
        self._body, self._cancelled_before = body, body.cancelling()
        self._beating = DelayedTask(self._every, self._beat, f"beat {self.lease.kind}")
        self._context.held[(self.lease.kind, self.lease.lane)] = self
        if self.lease.died:
            self._context.events.tell_now(LeaseTakenOver, kind=self.lease.kind, conversation=self.lease.lane)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beating.end()
        self._context.held.pop((self.lease.kind, self.lease.lane), None)
        if self._lost is not None or isinstance(error, Fenced):
            self._context.events.tell_now(LeaseLost, kind=self.lease.kind, conversation=self.lease.lane)
        if error is not None and self._lost is not None and self._body.uncancel() <= self._cancelled_before:
            raise self._lost from None

    async def make_sure(self) -> None:
        """Check that the lease is still held, with a renewal if the lease may have lapsed.

        Raises Fenced for a lost lease, and StoreUnavailable without an answer of the store.
        """
        if elapsed_seconds() >= self._sure_until:
            await self._renew()

    async def _renew(self) -> None:
        began = elapsed_seconds()
        control = await self._context.store.renew(self.lease, lease_seconds=self._context.lease_seconds)
        self._sure_until = began + self._context.lease_seconds
        if self._on_signal is not None:
            for signal in control.signals:
                self._on_signal(signal)

    async def _beat(self) -> None:
        lease, away = self.lease, False
        while True:
            self._wake.clear()
            try:
                await self._renew()
            except Fenced as error:
                if not self.ends:
                    self._lost = error
                    self._body.cancel()
                return
            except StoreError as error:
                if not away:
                    log.warning("could not renew the %s lease of %s: %s", lease.kind, lease.lane, type(error).__name__)
                away = True
            else:
                away = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._wake.wait()

    def look(self) -> None:
        """Renew the lease at once, and read the lane's signals."""
        self._wake.set()
        self._beating.begin()
