"""A stage with a process that serves the BOT of the test's module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kill.stage import BOT, Stage, a_store, on_stage
from tests.mcp.conftest import host

__all__ = ["host"]


@pytest.fixture(params=["sqlite", "redis"])
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with a_store(request.param, tmp_path) as store, on_stage(tmp_path, store) as stage:
        stage.bot = getattr(request.module, "BOT", BOT)
        await stage.start()
        yield stage
