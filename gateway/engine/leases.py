"""Holding a lease while work runs: beaten, listened on for signals, and let go the moment it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from channels import Json
from gateway.engine.later import Later
from gateway.engine.shared import Shared
from gateway.memory import HISTORY
from gateway.store.base import Fenced, Kind, Lease, Reads, StoreError, Transaction
from gateway.store.form import NewerForm

__all__ = ["BEATS", "READS", "for_newer", "held"]

log = logging.getLogger("askfirst.leases")

READS: Mapping[Kind, Reads] = {
    "turn": Reads(records=("open",), log="transcript", last=HISTORY),
    "out": Reads(records=("open", "receipts")),
    "action": Reads(),
}
"""What whoever takes such a lane reads first."""
BEATS = 3
"""Renewals within the life of a lease: two may fail before it is lost."""


def for_newer(lease: Lease, newer: NewerForm) -> Transaction:
    """Gives back a lease whose work a newer release has to do: its lane is as it was, for a worker of that one."""
    log.warning("the %s of %s is left: %s", lease.kind, lease.lane, newer)
    return Transaction(partition=lease.partition, lease=lease, finish="left", needs=newer.needs)


@contextlib.asynccontextmanager
async def held(
    shared: Shared, lease: Lease, on_signal: Callable[[Json], None] | None = None
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Renew the lease while the body runs. When it is lost the body is cancelled and Fenced is raised.

    A store that does not answer is no loss: what the body commits is refused if somebody else has taken over. What the
    body does elsewhere nobody refuses: before that it calls what this yields, which raises Fenced, or StoreUnavailable
    when the lease may have lapsed and nobody can say.
    """
    body = asyncio.current_task()
    if body is None:
        raise RuntimeError("a lease is held by a task")
    cancelled_before = body.cancelling()
    lost: list[Fenced] = []
    wake = asyncio.Event()

    sure_until = lease.sure_until

    async def renew() -> None:
        nonlocal sure_until
        began = time.monotonic()
        control = await shared.store.renew(lease, lease_seconds=shared.lease_seconds)
        sure_until = began + shared.lease_seconds
        if on_signal is not None:
            for signal in control.signals:
                on_signal(signal)

    async def make_sure() -> None:
        if time.monotonic() >= sure_until:
            await renew()

    async def beat() -> None:
        away = False
        while True:
            wake.clear()
            try:
                await renew()
            except Fenced as error:
                lost.append(error)
                body.cancel()
                return
            except StoreError as error:
                if not away:
                    log.warning("could not renew the %s lease of %s: %s", lease.kind, lease.lane, type(error).__name__)
                away = True
            else:
                away = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await wake.wait()

    def look() -> None:
        wake.set()
        beating.begin()

    every = shared.lease_seconds / BEATS
    beating = Later(every, beat, f"beat {lease.kind}")
    shared.held[(lease.kind, lease.lane)] = (lease, look)
    try:
        yield make_sure
    except BaseException:
        if lost and body.uncancel() <= cancelled_before:
            raise lost[0] from None
        raise
    finally:
        beating.end()
        shared.held.pop((lease.kind, lease.lane), None)
