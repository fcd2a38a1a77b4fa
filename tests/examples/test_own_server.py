"""examples/own_server.py under uvicorn: the shop's page, the chat page, and a message begun by the shop."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

from tests.examples.loading import load
from tests.ports import free_port
from tests.web.test_asgi import running, session


async def test_shop_and_bot_share_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_STORE", f"sqlite:///{tmp_path / 'askfirst.db'}")
    monkeypatch.setenv("ASKFIRST_ALLOW", "webchat:*")
    example = await asyncio.to_thread(load, "own_server")
    async with running(example.app, free_port()) as url, session() as http:
        async with http.get(f"{url}/bot/chat") as page:
            assert page.status == 200
        async with http.get(f"{url}/bot/chat/events") as events:
            chat = Chat(http, events, url)
            await chat.says("cancel order A-17")
            code = await chat.hears(r"OK ([A-Z0-9]{4})")
            assert (await orders(http, url))["A-17"]["state"] == "open"
            await chat.says(f"OK {code}")
            await chat.hears(r"(Order A-17 is cancelled\.)")
            assert (await orders(http, url))["A-17"]["state"] == "cancelled"

            await chat.says("/whoami")
            monkeypatch.setattr(example, "MANAGER", await chat.hears(r"(webchat:local:[\w-]+)"))
            new = {"customer": "Mia", "euros": 30}
            async with http.put(f"{url}/orders/A-19", json=new) as taken:
                assert taken.status == 201
            await chat.hears(r"A new order: .*(A-19)")


async def orders(http: aiohttp.ClientSession, url: str) -> dict[str, dict[str, object]]:
    async with http.get(f"{url}/orders") as answer:
        found: dict[str, dict[str, object]] = await answer.json()
        return found


class Chat:
    """The requests of the chat page to the server."""

    def __init__(self, http: aiohttp.ClientSession, events: aiohttp.ClientResponse, url: str) -> None:
        self._http, self._events, self._url = http, events, url
        self._said = 0

    async def says(self, text: str) -> None:
        self._said += 1
        message = {"client_id": f"{self._said:032}", "text": text}
        async with self._http.post(
            f"{self._url}/bot/chat/messages", json=message, headers={"Origin": self._url}
        ) as taken:
            assert taken.status < 300, await taken.text()

    async def hears(self, pattern: str) -> str:
        async with asyncio.timeout(20):
            async for line in self._events.content:
                if found := re.search(pattern, line.decode()):
                    return found[1]
        raise AssertionError(f"it ended without {pattern}")
