"""Holding a lease while work runs: beaten, listened on for signals, and let go the moment it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from channels import Json
from gateway.engine.concurrency import DelayedTask
from gateway.engine.context import EngineContext
from gateway.engine.turns.notes import NOTES
from gateway.memory import LINES_READ
from gateway.store.base import Fenced, Kind, Lease, Prefetch, StoreError, Transaction
from gateway.store.form import NewerForm

__all__ = ["BEATS", "PREFETCH", "HeldLease", "release_to_newer", "shielded_commit"]

log = logging.getLogger("askfirst.leases")

PREFETCH: Mapping[Kind, Prefetch] = {
    "turn": Prefetch(records=("open", NOTES), log="transcript", last=LINES_READ),
    "out": Prefetch(records=("open",)),
    "action": Prefetch(records=("action",)),
}
"""What whoever takes such a lane reads first."""
BEATS = 3
"""Renewals within the life of a lease: two may fail before it is lost."""


def release_to_newer(lease: Lease, newer: NewerForm) -> Transaction:
    """Gives back a lease whose work a newer release has to do: its lane is as it was, for a worker of that one."""
    log.warning("the %s of %s is left: %s", lease.kind, lease.lane, newer)
    return Transaction(partition=lease.partition, lease=lease, finish="left", requires_form=newer.needs)


async def shielded_commit(work: Awaitable[object]) -> None:
    """What work that was cancelled still does for its lease, however often it is cancelled; a lease that is gone needs
    nothing more."""

    async def unless_gone() -> None:
        with contextlib.suppress(Fenced):
            await work

    await asyncio.shield(unless_gone())


class HeldLease:
    """Renews a lease while the body of a `with` runs, in one task. When it is lost the body is cancelled and Fenced is
    raised.

    A store that does not answer is no loss: what the body commits is refused if somebody else has taken over. What the
    body does elsewhere nobody refuses: before that it calls `make_sure`.
    """

    def __init__(self, context: EngineContext, lease: Lease, on_signal: Callable[[Json], None] | None = None) -> None:
        self._context, self.lease, self._on_signal = context, lease, on_signal
        self.ends = False
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beating.end()
        self._context.held.pop((self.lease.kind, self.lease.lane), None)
        if error is not None and self._lost is not None and self._body.uncancel() <= self._cancelled_before:
            raise self._lost from None

    async def make_sure(self) -> None:
        """Raises Fenced, or StoreUnavailable when the lease may have lapsed and nobody can say."""
        if time.monotonic() >= self._sure_until:
            await self._renew()

    async def _renew(self) -> None:
        began = time.monotonic()
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
        self._wake.set()
        self._beating.begin()
