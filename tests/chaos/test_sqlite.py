"""The only process of a SQLite file is killed again and again: no work is lost or repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.check import violations
from tests.chaos.run import Form, opened

SHORT = Form(conversations=24, messages=8, lease_seconds=6, workers=1, signals=10, signal_every_seconds=0.6)
LONG = replace(SHORT, conversations=80, messages=20, signals=50, signal_every_seconds=1.5)


async def run_through(form: Form, directory: Path) -> None:
    async with opened(form, directory) as run:
        await run.go()
        assert await violations(run) == []
        killed = run.record.lines("signal")
        assert len(killed) >= form.signals


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_repeated_kills_lose_and_repeat_no_work(tmp_path: Path) -> None:
    await run_through(SHORT, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
async def test_fifty_kills_lose_and_repeat_no_work(tmp_path: Path) -> None:
    await run_through(LONG, tmp_path)
