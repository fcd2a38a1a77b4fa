"""A machine that was asleep: the clock of leases counts that time, and `time.monotonic` does not."""

from __future__ import annotations

import time
from typing import Any, cast

from gateway.store.clock_steps import elapsed_ns
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Clock

HOUR_NS = 3_600 * 10**9


async def test_waiting_for_a_lease_after_a_suspend_sleeps() -> None:
    looks = 0

    def elapsed() -> int:
        nonlocal looks
        looks += 1
        return elapsed_ns() + HOUR_NS

    store = SqliteStore(":memory:")
    cast("Any", store)._clock = Clock(time.time_ns, elapsed)
    await store.open()
    try:
        looks = 0
        assert await store.lease("w", ["turn"], wait_seconds=0.2) is None
        assert looks < 50
    finally:
        await store.close()
