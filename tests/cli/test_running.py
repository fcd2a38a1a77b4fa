"""What every command that serves does around its gateway."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from gateway import Agent, Gateway, Settings
from gateway.cli.running import run
from tests.e2e.house import SIGNING


async def test_what_is_loaded_at_the_start_is_not_looked_through_for_garbage_again(tmp_path: Path) -> None:
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


async def _at_once() -> None:
    return
