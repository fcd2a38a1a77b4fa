"""Holding a lease while work runs: beaten, listened on for signals, and let go the moment it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from channels import Json
from gateway.engine.shared import Shared
from gateway.store.base import Fenced, Lease, StoreError

__all__ = ["LEASE_SECONDS", "held"]

log = logging.getLogger("askfirst.leases")

LEASE_SECONDS = 6.0
_BEATS = 3
"""Renewals within the life of a lease: two may fail before it is lost."""


@contextlib.asynccontextmanager
async def held(shared: Shared, lease: Lease, on_signal: Callable[[Json], None] | None = None) -> AsyncIterator[None]:
    """Renew the lease while the body runs. When it is lost the body is cancelled and Fenced is raised.

    A store that does not answer is no loss: what the body commits is refused if somebody else has taken over.
    """
    body = asyncio.current_task()
    if body is None:
        raise RuntimeError("a lease is held by a task")
    cancelled_before = body.cancelling()
    lost: list[Fenced] = []
    wake = asyncio.Event()

    async def beat() -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEASE_SECONDS / _BEATS):
                    await wake.wait()
            wake.clear()
            try:
                control = await shared.store.renew(lease, lease_seconds=LEASE_SECONDS)
            except Fenced as error:
                lost.append(error)
                body.cancel()
                return
            except StoreError as error:
                log.warning("could not renew the %s lease of %s: %s", lease.kind, lease.lane, type(error).__name__)
                continue
            if on_signal is not None:
                for signal in control.signals:
                    on_signal(signal)

    beating = asyncio.create_task(beat(), name=f"beat {lease.kind}")
    shared.held[(lease.kind, lease.lane)] = (lease, wake)
    try:
        yield
    except BaseException:
        if lost and body.uncancel() <= cancelled_before:
            raise lost[0] from None
        raise
    finally:
        beating.cancel()
        shared.held.pop((lease.kind, lease.lane), None)
