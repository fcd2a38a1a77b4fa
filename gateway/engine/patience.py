"""While the store does not answer, whoever knows what was done keeps it, and writes it down when it answers again.

A call without an answer may have taken effect: who tries again reads first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from gateway.store.base import StoreUnavailable

__all__ = ["wait_for_store", "waits"]

_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0)


def waits() -> Iterator[float]:
    """How long to wait each time, in seconds."""
    return iter(_WAITS_SECONDS)


async def wait_for_store(left: Iterator[float], error: StoreUnavailable) -> None:
    """The next wait; when there is none left, the error is raised."""
    wait = next(left, None)
    if wait is None:
        raise error
    await asyncio.sleep(wait)
