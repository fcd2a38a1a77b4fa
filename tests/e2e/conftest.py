"""A house for each test with the fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.house import House, case, open_house
from tests.store.conftest import prefix, redis_url, server

__all__ = ["case", "prefix", "redis_url", "server"]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house
