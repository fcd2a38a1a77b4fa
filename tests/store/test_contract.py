"""The embedded store does what every store must."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.base import Store
from gateway.store.sqlite import SqliteStore
from gateway.testing import StoreContract


class TestInAFile(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SqliteStore(tmp_path / "askfirst.db", max_waiting=self.max_waiting)
        await store.open()
        yield store
        await store.close()


class TestInMemory(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = SqliteStore(":memory:", max_waiting=self.max_waiting)
        await store.open()
        yield store
        await store.close()
