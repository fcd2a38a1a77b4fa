"""Many clients, and such as do not read, do not wait, or hold on: the others are served all the same."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import resource
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from aiohttp import web

from channels.webchat import COOKIE, SessionCookies
from gateway.web import ClientLimits, Running, serve
from gateway.web.limits import limit_bodies
from tests.web.conftest import KEY, Bot, Start, now
from tests.web.raw import Client

LIVE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HEAD = b"POST /webhooks/webchat HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def said(bot: Bot, client_id: str = "12345678") -> bytes:
    """A message from the page, as it comes over the wire."""
    cookie = SessionCookies([KEY]).begin(now(), lambda size: bytes(size)).cookie
    body = b'{"client_id": "%s", "text": "hello"}' % client_id.encode()
    head = f"POST /chat/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {bot.url}\r\nCookie: {COOKIE}={cookie}\r\n"
    return (
        head.replace("Host: 127.0.0.1", f"Host: {bot.url[7:]}") + f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def served(port: int) -> bool:
    async with Client(port) as client:
        await client.send(LIVE)
        return await client.status() == 200


# ───────────── many ─────────────


async def test_connection_over_the_limit_closes_the_longest_idle_one(start: Start) -> None:
    async with start(ClientLimits(connections=3)) as running, contextlib.AsyncExitStack() as stack:
        first, second, third = [await stack.enter_async_context(Client(running.port)) for _ in range(3)]
        for client in (second, third, first, second):
            await client.send(LIVE)
            assert await client.status() == 200
        assert await served(running.port)
        assert await third.rest() == b""
        for client in (first, second):
            await client.send(LIVE)
            assert await client.status() == 200


SLOW = [
    b"",
    b"POST /webh",
    HEAD + b"X-Half: ",
    HEAD + b"Content-Length: 100\r\n\r\nhalf",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nh",
    LIVE,
    LIVE + b"GET /li",
    b"\x16\x03\x01\x02\x00\x01\x00",
]


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("connections", [ClientLimits().connections, 50])
async def test_a_thousand_slow_clients_hold_nobody_up(start: Start, bot: Bot, connections: int) -> None:
    async with start(ClientLimits(connections=connections)) as running, contextlib.AsyncExitStack() as stack:
        for count, sent in zip(range(1000), itertools.cycle(SLOW), strict=False):
            slow = await stack.enter_async_context(Client(running.port))
            await slow.send(sent)
            if count % 20 == 0:
                async with Client(running.port) as client:
                    await client.send(said(bot, f"message-{count}"))
                    assert await client.status() == 200
    assert len(bot.accepted) == 50


async def test_used_connection_outlives_any_number_of_idle_ones(start: Start) -> None:
    async with start(ClientLimits(connections=10)) as running, contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Client(running.port))
        for _ in range(20):
            for _ in range(5):
                await stack.enter_async_context(Client(running.port))
            await proxy.send(LIVE)
            assert await proxy.status() == 200


# ───────────── those that do not read ─────────────


@contextlib.asynccontextmanager
async def talkative(limits: ClientLimits, ended: asyncio.Queue[str]) -> AsyncIterator[Running]:
    """A server whose one answer never ends; it says how each request for it ended."""

    async def talk(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        try:
            await answer.prepare(request)
            while True:
                await answer.write(bytes(65536))
        except ConnectionError:
            ended.put_nowait("closed")
            raise

    async def word(request: web.Request) -> web.Response:
        ended.put_nowait("answered")
        return web.Response(text="word" * 16_000)

    app = web.Application()
    limit_bodies(app, limits)
    app.router.add_get("/talk", talk)
    app.router.add_get("/word", word)
    running = await serve(app, "127.0.0.1", 0)
    yield running
    await running.cleanup()


async def test_a_client_that_reads_nothing_of_its_answer_is_closed() -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()
    async with (
        talkative(ClientLimits(unread_seconds=0.3), ended) as running,
        Client(running.port, reads=False) as client,
    ):
        await client.send(b"GET /talk HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(60):
            assert await ended.get() == "closed"


async def test_endless_requests_with_unread_answers_are_dropped() -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()
    async with (
        talkative(ClientLimits(unread_seconds=0.3), ended) as running,
        Client(running.port, reads=False) as client,
    ):
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(60):
                while True:
                    await client.send(b"GET /word HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
        assert 0 < ended.qsize() < 1000


# ───────────── those that do not wait ─────────────


@pytest.mark.parametrize("leaving", [Client.vanish, Client.half_close], ids=["gone", "half closed"])
async def test_client_leaving_before_the_answer_may_say_it_again(
    start: Start, bot: Bot, leaving: Callable[[Client], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with start() as running:
        async with Client(running.port) as client:
            bot.answer = lambda bot, event: leaving(client)
            await client.send(said(bot))
            await bot.arrived(1)
        async with Client(running.port) as client:
            await client.send(said(bot))
            assert await client.status() == 200
    assert len(bot.accepted) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_who_leaves_in_the_middle_of_many_requests_has_said_some(
    start: Start, bot: Bot, caplog: pytest.LogCaptureFixture
) -> None:
    async with start() as running:
        async with Client(running.port) as client:
            bot.answer = lambda bot, event: client.vanish() if len(bot.accepted) == 3 else None
            await client.send(b"".join(said(bot, f"message-{count}") for count in range(20)))
            await bot.arrived(3)
        assert await served(running.port)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_requests_sent_at_once_are_answered_in_order(start: Start, bot: Bot) -> None:
    async with start() as running, Client(running.port) as client:
        last = LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        await client.send(LIVE + said(bot) + b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n" + last)
        answers = await client.rest()
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"200", b"404", b"200"]
