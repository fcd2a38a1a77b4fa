"""The engine's tests run on SQLite; with `make nightly` also on Redis, with a server in place of the memory used here.

A module about time, leases, a hand-over or several processes is marked `both_stores`: each run tests both stores.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import assembly
from gateway.engine import retrying
from gateway.engine.turns import bare_replies
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.testing import ChatDriver
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, rig
from tests.machine.places import OnRedis, OnSqlite, Places
from tests.store.conftest import prefix, redis_url

__all__ = ["prefix", "redis_url"]

_IN_MEMORY = ":memory:"
_PATIENCE_SECONDS = 5.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = () if metafunc.definition.get_closest_marker("both_stores") else (pytest.mark.nightly,)
    written = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "kept_on" in metafunc.fixturenames and not any("kept_on" in names for names in written):
        metafunc.parametrize("kept_on", ["sqlite", pytest.param("redis", marks=marks)], indirect=True)


@pytest.fixture(autouse=True)
def kept_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the kind of the store; each store of a test is new."""
    kind = str(request.param)
    if kind == "redis":
        url, own, numbers = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix"), itertools.count()

        def opened(path: str) -> Store:
            if path != _IN_MEMORY:
                return SqliteStore(path)
            return RedisStore(url, prefix=f"{own}:{next(numbers)}", ack_seconds=_PATIENCE_SECONDS)

        monkeypatch.setattr(assembly, "SqliteStore", opened)
    return kind


@pytest.fixture
def places(kept_on: str, request: pytest.FixtureRequest) -> Places:
    """Return the maker of the places for a test's worlds."""
    if kept_on == "sqlite":
        return OnSqlite
    url, own, numbers = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix"), itertools.count()
    return lambda: OnRedis(url, f"{own}:{next(numbers)}")


@pytest.fixture
def invoices() -> Invoices:
    return Invoices()


@pytest.fixture
async def chat(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    async with rig(invoices.bot(), tmp_path) as chat:
        yield chat


@pytest.fixture
async def driver(invoices: Invoices) -> AsyncIterator[ChatDriver]:
    async with ChatDriver(invoices.bot()) as driver:
        yield driver


@pytest.fixture
async def asked(driver: ChatDriver) -> ChatDriver:
    """A chat after Ana was asked about an invoice."""
    await driver.says("ana", "delete INV-1")
    return driver


@pytest.fixture
def nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the waits for a prompt on its way, and for a store without an answer, from seconds to milliseconds."""
    monkeypatch.setattr(bare_replies, "_SEND_WAIT_SECONDS", 0.004)
    monkeypatch.setattr(bare_replies, "_LOOK_SECONDS", 0.002)
    monkeypatch.setattr(retrying, "_WAITS_SECONDS", (0.001,))
