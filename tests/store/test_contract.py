"""The embedded store keeps the contract of every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.base import Store
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.writer import SqliteTimings
from gateway.testing import StoreContract
from gateway.testing.store_contract.mailbox import WaitingContract
from gateway.testing.store_contract.model import ModelContract


class TestInAFile(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SqliteStore(tmp_path / "askfirst.db", max_waiting=self.max_waiting)
        await store.open()
        yield store
        await store.close()


class TestNobodyLooksAgain(WaitingContract, ModelContract):
    """A waiting worker is tried at a wake-up, not only at the thread's look now and then."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = SqliteStore(":memory:", timings=SqliteTimings(look_again_seconds=3600.0, look_up_seconds=3600.0))
        await store.open()
        yield store
        await store.close()
