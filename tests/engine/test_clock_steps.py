"""The clock of the machine, or of Redis, is set forward by twenty minutes while a question is open for fifteen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway import assembly
from gateway.store.base import Store
from gateway.store.clock_steps import elapsed_ns
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Clock
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, rig
from tests.engine.test_tampered_records import press, texts

pytestmark = pytest.mark.both_stores

STEP_SECONDS = 20 * 60
DAYS_SECONDS = 2 * 86_400


class Steppable:
    """A new store, and the way to set the store's clock."""

    def __init__(self, url: str | None, prefix: str) -> None:
        self.back_seconds = self.forward_seconds = 0
        self.store: Store
        if url is None:
            self.store = sqlite = SqliteStore(":memory:")
            sqlite._clock = Clock(self._wall, elapsed_ns)
        else:
            self.store = RedisStore(url, prefix=prefix, ack_seconds=5, elapsed_ns=self._elapsed)

    def _wall(self) -> int:
        return time.time_ns() + self.forward_seconds * 10**9

    def _elapsed(self) -> int:
        return elapsed_ns() - self.back_seconds * 10**9

    def set_forward(self, seconds: int = STEP_SECONDS) -> None:
        """Set the clock forward. The clock of Redis stays: the elapsed clock goes back, and the store's forward."""
        if isinstance(self.store, SqliteStore):
            self.forward_seconds += seconds
        else:
            self.back_seconds += seconds
            self.store.offset_seconds += seconds


@pytest.fixture
def kept(kept_on: str, request: pytest.FixtureRequest) -> Steppable:
    if kept_on == "sqlite":
        return Steppable(None, "")
    return Steppable(request.getfixturevalue("redis_url"), request.getfixturevalue("prefix"))


@pytest.fixture
async def chat(
    tmp_path: Path, invoices: Invoices, kept: Steppable, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rig]:
    opened: Callable[[str], Store] = lambda path: kept.store  # noqa: E731
    monkeypatch.setattr(assembly, "SqliteStore", opened)
    async with rig(invoices.bot(), tmp_path) as chat:
        yield chat


async def test_a_question_stays_open_and_its_button_counts(chat: Rig, invoices: Invoices, kept: Steppable) -> None:
    """Finding 32: the question had expired. A button, unlike a bare word, counts until the deadline in the question."""
    await chat.asks(1)
    kept.set_forward()
    chat.worker.context.clock.observe(await chat.store.now())  # unmoved, on either store
    await chat.worker.engine.due()
    await chat.work()
    assert [action.state for action in await chat.actions()] == ["pending"]
    await press(chat, 1)
    assert invoices.deleted == ["INV-1"]


async def test_question_expires_on_time_despite_a_clock_step(chat: Rig, invoices: Invoices, kept: Steppable) -> None:
    await chat.asks(1)
    kept.set_forward()
    chat.worker.context.clock.observe(await chat.store.now())  # unmoved, on either store
    await chat.advance(15 * 60 - 5)
    assert [action.state for action in await chat.actions()] == ["pending"]
    await chat.advance(6)
    await chat.work()
    assert [(action.state, action.reason) for action in await chat.actions()] == [("closed", "expired")]
    assert "expired" in texts(chat)
    assert invoices.deleted == []


async def test_waiting_approval_is_launched_despite_a_clock_step(
    chat: Rig, invoices: Invoices, kept: Steppable
) -> None:
    """An approval is good for fifteen minutes, too."""
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    kept.set_forward()
    chat.worker.context.clock.observe(await chat.store.now())  # unmoved, on either store
    await chat.worker.engine.due()
    await chat.work()
    assert invoices.deleted == ["INV-1"]


async def test_waiting_reply_is_sent_despite_a_clock_step(chat: Rig, kept: Steppable) -> None:
    """A reply waiting for a day would stay unsent."""
    await chat.says("ana", "hello")
    await chat.worker.turn()
    kept.set_forward(DAYS_SECONDS)
    chat.worker.context.clock.observe(await chat.store.now())
    await chat.work()
    assert chat.platform.texts() == ["You said: hello"]
