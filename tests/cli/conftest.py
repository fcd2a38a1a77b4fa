"""A directory with the invoices example. The traces of a command in this process are removed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.house import SIGNING
from tests.fakes.telegram import FakeTelegram
from tests.mcp.conftest import host
from tests.store.conftest import prefix, redis_url, server
from tests.store.redis_server import RedisServer

__all__ = ["host", "prefix", "redis_url", "server"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with ``bot.py``. Commands may load bots and a ``.env`` from the directory."""
    shutil.copy(EXAMPLE, tmp_path / "bot.py")
    monkeypatch.chdir(tmp_path)
    path, modules, environ = list(sys.path), set(sys.modules), dict(os.environ)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(environ)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as telegram:
        yield telegram


@pytest.fixture(params=["sqlite", "redis"])
async def at(here: Path, request: pytest.FixtureRequest) -> AsyncIterator[Mapping[str, str]]:
    if request.param == "sqlite":
        yield {"ASKFIRST_STORE": f"sqlite:///{here / 'own.db'}"}
        return
    (here / "redis").mkdir()
    server = RedisServer(here / "redis")
    await server.start()
    yield {"ASKFIRST_STORE": server.url, "ASKFIRST_SECRET": SIGNING, "ASKFIRST_ARTIFACTS": str(here / "files")}
    await server.kill()
