"""Many clients, among them clients that do not read, do not wait or hold on: the others are still served."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import pytest
from aiohttp import web

from channels.webchat import COOKIE, SessionCookies
from gateway.web import ClientLimits, Running, serve
from gateway.web.limits import limit_bodies
from gateway.web.serving import Connection, ConnectionPool
from tests.web.conftest import KEY, Bot, Start, now
from tests.web.raw import Client, status

LIVE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HEAD = b"POST /webhooks/webchat HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def said(bot: Bot, client_id: str = "12345678") -> bytes:
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
async def test_a_thousand_slow_clients_delay_no_other_client(start: Start, bot: Bot, connections: int) -> None:
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


# ───────────── clients that do not read ─────────────


@contextlib.asynccontextmanager
async def talkative(limits: ClientLimits, ended: asyncio.Queue[str]) -> AsyncIterator[Running]:
    """A server with one endless answer. `ended` gets the end of each request."""

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


async def test_a_client_that_does_not_read_its_answer_is_closed() -> None:
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


# ───────────── clients that do not wait ─────────────


@pytest.mark.parametrize("leaving", [Client.vanish, Client.half_close], ids=["gone", "half closed"])
async def test_client_leaving_before_the_answer_may_resend(
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


async def test_server_survives_a_client_gone_amid_many_requests(
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


# ── The server decides which connections may stay, wait for a turn, or get an answer after the last word ──


APART_SECONDS = 0.002
LATER = b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n"
FORGED = HEAD + b"Content-Length: 2\r\n\r\n{}"
NOWHERE = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n"


# ───────────── a turn for each ─────────────


@pytest.mark.parametrize("request_bytes", [FORGED, NOWHERE, LIVE], ids=["forged", "nowhere", "live"])
async def test_clients_that_do_not_wait_delay_no_other_client(start: Start, bot: Bot, request_bytes: bytes) -> None:
    """Counts the requests answered while an honest client had twenty messages stored: at most 500 a second."""
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
    """Connect `count` strangers. The server has read all they sent."""
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
    """A server whose answers wait for an event. Each received request releases the semaphore."""
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


async def test_with_all_clients_in_work_the_longest_served_is_closed() -> None:
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


async def test_half_closed_client_is_answered_however_long_it_takes() -> None:
    async with waiting(ClientLimits()) as (running, may, came), Client(running.port) as client:
        await client.send(LATER)
        client.half_close()
        await came.acquire()
        await asyncio.sleep(0.1)  # longer than an idle connection is kept
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
async def test_half_closed_client_is_still_answered(start: Start, sent: list[bytes], answers: list[int]) -> None:
    """The connection closes long before an idle connection, or one with an unfinished request."""
    async with start() as running, Client(running.port) as client, asyncio.timeout(8):
        for piece in sent:
            await client.send(piece)
            await asyncio.sleep(0.01 * (len(sent) > 1))
        client.half_close()
        told = await client.rest()
    assert [int(code) for code in re.findall(rb"HTTP/1.\d (\d+)", told)] == answers


async def test_a_message_of_a_half_closed_client_is_stored(start: Start, bot: Bot) -> None:
    async with start() as running, Client(running.port) as client:
        await client.send(said(bot))
        client.half_close()
        assert status(await client.rest()) == 200
    assert len(bot.accepted) == 1
