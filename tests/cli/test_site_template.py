"""`askfirst init --template site`: people log in on the site, and each reaches their own orders alone."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from gateway.cli import main
from tests.examples.test_own_server import Chat


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("ASKFIRST_STORE", f"sqlite:///{tmp_path / 'askfirst.db'}")
    monkeypatch.setenv("ASKFIRST_ALLOW", "webchat:*")
    assert CliRunner().invoke(main, ["init", str(tmp_path), "--template", "site"]).exit_code == 0
    spec = importlib.util.spec_from_file_location("site_bot", tmp_path / "bot.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
async def url(site: ModuleType) -> AsyncIterator[str]:
    app: web.Application = await asyncio.to_thread(site.make_app)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def test_a_login_reaches_the_orders_of_its_person(site: ModuleType, url: str) -> None:
    async with browser() as http:
        async with http.post(f"{url}/login", data={"person": "ana", "password": "secret"}) as page:
            assert (page.status, page.url.path) == (200, "/bot/chat")
        async with http.get(f"{url}/bot/chat/events") as events:
            chat = Chat(http, events, url)
            await chat.says("/whoami")
            await chat.hears(r"(webchat:site:ana)")
            await chat.says("cancel order A-18")
            await chat.hears(r"(no order A.?.?-18)")
            await chat.says("cancel order A-17")
            await chat.says(f"OK {await chat.hears(r'OK ([A-Z0-9]{4})')}")
            await chat.hears(r"(Order A-17 is cancelled)")
    assert list(site.ORDERS) == ["A-18"]


async def test_a_wrong_password_is_no_login(site: ModuleType, url: str) -> None:
    async with browser() as http:
        async with http.post(f"{url}/login", data={"person": "ana", "password": "guess"}) as page:
            assert page.status == 403
        async with http.get(f"{url}/bot/chat") as page:
            assert page.status == 200
        async with http.get(f"{url}/bot/chat/events") as events:
            chat = Chat(http, events, url)
            await chat.says("/whoami")
            assert await chat.hears(r"(webchat:[\w-]+):") == "webchat:local"
