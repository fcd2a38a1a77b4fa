"""Overload shows as later answers and never as refusals: many chats at once beside a program on each core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.chats import Chats
from bench.replies import with_server
from bench.rounds import Served

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

ACKNOWLEDGED_SECONDS = 2.0
"""The bound of this test. Alone on two cores, 99 % of the acknowledgements take less than a second."""


@contextmanager
def busy_cores() -> Iterator[None]:
    """Run a program on each core."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.parametrize("redis", [False, True], ids=["sqlite", "redis"])
@pytest.mark.parametrize(("chats", "turns"), [(64, 20), (256, 6)])
def test_a_busy_process_refuses_no_webhook(chats: int, turns: int, *, redis: bool) -> None:
    async def measure(people: Chats, server: Served) -> tuple[int, list[float]]:
        await people.talk(chats, 1)
        people.acknowledged.clear()
        people.refused = 0
        with busy_cores():
            await people.talk(chats, turns)
        return people.refused, sorted(people.acknowledged)

    refused, acknowledged = with_server("telegram", "ours_replying", measure, redis=redis)
    assert refused == 0 and len(acknowledged) == chats * turns
    assert acknowledged[len(acknowledged) * 99 // 100] < ACKNOWLEDGED_SECONDS
