"""No name resolves while a gateway runs: incoming events are taken and decided, outgoing messages wait and arrive."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.e2e import house as houses
from tests.e2e.house import House, delete, open_house
from tests.e2e.test_confirming import DONE
from tests.fakes.telegram import FakeTelegram

NAME = "localhost"  # any other would have to be reached by https


class Names(AbstractResolver):
    """Knows one name, and says of it what a name server that is `away` lets the system say."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        assert host == NAME
        self.asked += 1
        if self.away:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        found = ResolveResult(hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0)
        return [found]

    async def close(self) -> None:
        """Nothing is held."""


class NamedTelegram(FakeTelegram):
    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.url = self.url.replace("127.0.0.1", NAME)
        return self


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Asked for each connection, and each request is one."""
    names = Names()
    connector = functools.partial(aiohttp.TCPConnector, resolver=names, use_dns_cache=False, force_close=True)
    monkeypatch.setattr(aiohttp, "TCPConnector", connector)
    monkeypatch.setattr(houses, "FakeTelegram", NamedTelegram)
    return names


@pytest.fixture
async def house(names: Names, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house


async def status(house: House, page: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{house.url}/{page}") as answer:
        return answer.status


async def tried(names: Names, house: House) -> None:
    """Somebody asks for the name, and what was tried is over."""
    before = names.asked
    async with asyncio.timeout(15):
        while names.asked == before:
            await asyncio.sleep(0.002)
    await house.idle()


async def test_decisions_without_dns_are_done_and_told_once_it_is_back(house: House, names: Names) -> None:
    ben = house.telegram.person("Ben")
    prompt = await house.prompt()
    names.away = True
    press = await house.telegram.press(prompt, "Confirm", house.ana)
    await house.until(lambda: house.shop.deleted == ["INV-42"])
    house.model.script(["Hello, Ben."])
    await house.says("hello", by=ben)
    await tried(names, house)
    for seconds in (3, 10):
        await house.later(seconds)
        await tried(names, house)
    assert [await status(house, page) for page in ("livez", "readyz")] == [200, 200]
    assert (house.texts(ben), house.texts()[1:]) == ([], [])
    names.away = False
    await house.later(60)
    await house.until(lambda: house.texts(ben) == ["Hello, Ben."] and house.texts()[1:] == [DONE])
    await house.until(lambda: not prompt.buttons)
    await house.idle()
    assert house.shop.deleted == ["INV-42"]
    assert await house.gateway.store.dead_letters() == []
    assert (await house.asks("again", *delete("INV-7"))).buttons
    assert not press.alert
