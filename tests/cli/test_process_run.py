"""What every command that serves does around its gateway."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

from gateway import Agent, Gateway, Settings
from gateway.cli.process import run
from tests.e2e.house import SIGNING


async def test_objects_loaded_at_the_start_are_frozen_for_the_gc(tmp_path: Path) -> None:
    """It would hold up the event loop for longer than a platform is kept waiting."""
    settings = Settings(store=f"sqlite:///{tmp_path / 'askfirst.db'}", secret=SIGNING, allow="*")
    gateway = await asyncio.to_thread(Gateway, Agent([], provider="demo"), settings)
    left_alone: list[int] = []

    def announce(url: str) -> None:
        left_alone.append(gc.get_freeze_count())

    try:
        await run(gateway, "127.0.0.1", 0, stopped=_at_once, grace_seconds=1, announce=announce)
    finally:
        gc.unfreeze()
    assert left_alone[0] > 50_000


def test_event_loop_has_at_least_32_threads_for_dns() -> None:
    """uvloop has four threads for them, of which two look names up, unless it is told otherwise before it begins."""
    code = (
        "import asyncio, os\n"
        "from gateway.cli.process import event_loop\n"
        "with asyncio.Runner(loop_factory=event_loop) as runner:\n"
        "    runner.run(asyncio.wait_for(runner.get_loop().getaddrinfo('localhost', 80), 10))\n"
        "    print(len(os.listdir('/proc/self/task')))\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "UV_THREADPOOL_SIZE"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(ran.stdout) >= 32


async def _at_once() -> None:
    return
