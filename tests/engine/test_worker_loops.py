"""The loops that take work outlive every error inside them."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.errors import StoreUnavailable
from gateway.testing import ChatDriver
from tests.engine.bots import Invoices
from tests.engine.rig import until

pytestmark = pytest.mark.both_stores


@pytest.mark.parametrize(
    ("error", "told"),
    [(RuntimeError("hunter2"), "RuntimeError ("), (StoreUnavailable("it is full: make room"), "it is full: make room")],
)
async def test_an_error_nobody_expected_ends_no_loop_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, told: str
) -> None:
    async with ChatDriver(Invoices().bot()) as chat:
        store, called = chat.engine.context.store, asyncio.Event()
        tick, failures = store.run_timers, iter([error, error])

        async def failing() -> float | None:
            if (failure := next(failures, None)) is not None:
                raise failure
            called.set()
            return await tick()

        monkeypatch.setattr(store, "run_timers", failing)
        await called.wait()
        await until(lambda: "goes on" in caplog.text)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("timers:")]
    assert len(said) == 2
    assert said[0].startswith(f"timers: {told}") and said[1] == "timers: goes on"
    assert "hunter2" not in caplog.text
