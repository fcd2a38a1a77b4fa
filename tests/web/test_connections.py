"""The server decides which connections may stay, wait for a turn, or get an answer after the last word."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import cast

import pytest
from aiohttp import web

from channels.webchat import COOKIE, SessionCookies
from gateway.web import ClientLimits, Running, serve
from gateway.web.limits import limit_bodies
from gateway.web.serving import Connection, ConnectionPool
from tests.web.conftest import KEY, Bot, Start, now
from tests.web.raw import Client, status
from tests.web.test_clients import HEAD, LIVE, said, served

APART_SECONDS = 0.002
LATER = b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n"
FORGED = HEAD + b"Content-Length: 2\r\n\r\n{}"
NOWHERE = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n"


# ───────────── a turn for each ─────────────


@pytest.mark.parametrize("request_bytes", [FORGED, NOWHERE, LIVE], ids=["forged", "nowhere", "live"])
async def test_who_does_not_wait_for_answers_takes_nobodys_time(start: Start, bot: Bot, request_bytes: bytes) -> None:
    """Counted by what was worked off while an honest client had twenty messages stored: 500 a second at most."""
    loop = asyncio.get_running_loop()
    async with start() as running, contextlib.AsyncExitStack() as stack:
        hurried = [await stack.enter_async_context(Client(running.port)) for _ in range(8)]
        answered = 0

        async def flood(client: Client) -> None:
            nonlocal answered
            with contextlib.suppress(ConnectionError):
                await client.send(request_bytes * 3000)
            while piece := await client.receive():
                answered += piece.count(b"HTTP/1.1 ")

        floods = [asyncio.create_task(flood(client)) for client in hurried]
        began = loop.time()
        async with Client(running.port) as honest:
            for count in range(20):
                await honest.send(said(bot, f"message-{count}"))
                assert await honest.status() == 200
        assert answered <= len(hurried) + (loop.time() - began) / APART_SECONDS + 1
        for task in floods:
            task.cancel()
        await asyncio.gather(*floods, return_exceptions=True)


async def test_hundred_pipelined_requests_are_all_answered(start: Start) -> None:
    async with start() as running, Client(running.port) as client:
        await client.send(LIVE * 100 + LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await client.rest()).count(b"HTTP/1.1 200") == 101


async def test_client_that_leaves_the_queue_is_not_waited_for() -> None:
    connections, went_on = ConnectionPool(ClientLimits()), asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.Response:
        connection = cast("Connection", request.protocol)
        if connection.headers_received():
            client.vanish()
            await connection.turn()
            went_on.set()
        return web.Response()

    manager = web.Server(handle)
    create = asyncio.get_running_loop().create_server
    async with await create(lambda: Connection(manager, connections), "127.0.0.1", 0) as server:
        before = [connections.turn() for _ in range(10_000)]
        async with Client(server.sockets[0].getsockname()[1]) as client, asyncio.timeout(10):
            await client.send(LIVE * 2)
            await went_on.wait()
        assert not before[-1].done()
        for turn in before[:-1]:
            turn.cancel()
        async with asyncio.timeout(10):
            await before[-1]
        await manager.shutdown()


# ───────────── too many ─────────────


async def fill(running: Running, stack: contextlib.AsyncExitStack, count: int, sent: bytes = b"") -> list[Client]:
    """So many strangers, whom the server has heard out."""
    strangers = []
    for _ in range(count):
        strangers.append(await stack.enter_async_context(Client(running.port)))
        await strangers[-1].send(sent)
        if sent == LIVE:
            assert await strangers[-1].status() == 200
    assert await served(running.port)
    return strangers


@pytest.mark.parametrize(
    "sent", [b"", LIVE, HEAD + b"Content-Length: 9\r\n\r\nhalf"], ids=["silent", "idle", "half a request"]
)
async def test_idle_strangers_cut_no_download(start: Start, bot: Bot, sent: bytes) -> None:
    content = bytes(8 * 1024 * 1024)
    link = bot.link(await bot.keeps(content, "large.bin"), lives_seconds=60)
    async with start(ClientLimits(connections=6)) as running, contextlib.AsyncExitStack() as stack:
        download = await stack.enter_async_context(Client(running.port, reads=False))
        await download.send(f"GET /{link} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        got = await download.receive()
        await fill(running, stack, 20, sent)
        got += await download.rest()
    assert len(got.partition(b"\r\n\r\n")[2]) == len(content)


async def test_idle_strangers_cut_no_stream(start: Start, bot: Bot) -> None:
    session = SessionCookies([KEY]).begin(now(), lambda size: bytes(size))
    async with start(ClientLimits(connections=6)) as running, contextlib.AsyncExitStack() as stack:
        page = await stack.enter_async_context(Client(running.port))
        await page.send(
            f"GET /chat/events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {COOKIE}={session.cookie}\r\n\r\n".encode()
        )
        assert status(await page.receive()) == 200
        await fill(running, stack, 20)
        await fill(running, stack, 20, LIVE)
        async with Client(running.port) as client:
            await client.send(said(bot))
            assert await client.status() == 200
        seen = b""
        async with asyncio.timeout(20):
            while b"hello" not in seen:
                seen += (piece := await page.receive())
                assert piece, "the stream was cut"


async def test_client_without_a_whole_request_is_closed_first(start: Start) -> None:
    async with start(ClientLimits(connections=4)) as running, contextlib.AsyncExitStack() as stack:
        (known,) = await fill(running, stack, 1, LIVE)
        (half,) = await fill(running, stack, 1, HEAD + b"Content-Length: 9\r\n\r\nhalf")
        (silent,) = await fill(running, stack, 1)
        for stranger in (half, silent):
            await fill(running, stack, 1)
            assert await stranger.rest() == b""
        await known.send(LIVE)
        assert await known.status() == 200


@contextlib.asynccontextmanager
async def waiting(limits: ClientLimits) -> AsyncIterator[tuple[Running, asyncio.Event, asyncio.Semaphore]]:
    """A server whose answers wait for an event. Each request that has come in releases the semaphore."""
    may, came = asyncio.Event(), asyncio.Semaphore(0)

    async def later(request: web.Request) -> web.Response:
        came.release()
        await may.wait()
        return web.Response(text="at last")

    app = web.Application()
    limit_bodies(app, limits)
    app.router.add_get("/later", later)
    running = await serve(app, "127.0.0.1", 0)
    try:
        yield running, may, came
    finally:
        may.set()
        await running.cleanup()


async def test_when_all_are_served_the_one_served_longest_goes() -> None:
    async with waiting(ClientLimits(connections=3)) as (running, may, came), contextlib.AsyncExitStack() as stack:
        clients = []
        for _ in range(4):
            clients.append(await stack.enter_async_context(Client(running.port)))
            await clients[-1].send(LATER)
            await came.acquire()
        may.set()
        assert await clients[0].rest() == b""
        assert [await client.status() for client in clients[1:]] == [200] * 3


# ───────────── after the last word ─────────────


async def test_who_has_sent_all_is_answered_however_long_it_takes() -> None:
    async with waiting(ClientLimits()) as (running, may, came), Client(running.port) as client:
        await client.send(LATER)
        client.half_close()
        await came.acquire()
        await asyncio.sleep(0.1)  # longer than a connection is kept with nothing in work
        may.set()
        assert (await client.rest()).endswith(b"at last")


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        ([LIVE], [200]),
        ([LIVE * 40], [200] * 40),
        ([FORGED], [401]),
        ([FORGED[:-1], b"}"], [401]),
        ([NOWHERE + FORGED + LIVE], [404, 401, 200]),
        ([b"no HTTP\r\n\r\n"], [400]),
        ([b""], []),
        ([HEAD], []),
        ([LIVE + HEAD], [200]),
        ([HEAD + b"Content-Length: 9\r\n\r\nhalf"], []),
    ],
    ids=["one", "many", "forged", "in pieces", "mixed", "garbage", "nothing", "half", "one and a half", "half a body"],
)
async def test_whole_requests_of_a_half_closed_client_are_answered(
    start: Start, sent: list[bytes], answers: list[int]
) -> None:
    """And the connection closes long before an idle one, or one that may still send the rest."""
    async with start() as running, Client(running.port) as client, asyncio.timeout(8):
        for piece in sent:
            await client.send(piece)
            await asyncio.sleep(0.01 * (len(sent) > 1))
        client.half_close()
        told = await client.rest()
    assert [int(code) for code in re.findall(rb"HTTP/1.\d (\d+)", told)] == answers


async def test_a_message_of_who_has_sent_all_is_stored_and_answered(start: Start, bot: Bot) -> None:
    async with start() as running, Client(running.port) as client:
        await client.send(said(bot))
        client.half_close()
        assert status(await client.rest()) == 200
    assert len(bot.accepted) == 1
