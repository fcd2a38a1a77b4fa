"""`serve` for somebody's own application: it guards the connections, and lets the application do what it did."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from gateway.web import serve
from gateway.web.limits import LIMITS, ClientLimits
from tests.web.raw import Client, exchange, status

FAST = ClientLimits(request_seconds=0.3)


async def slow(request: web.Request) -> web.Response:
    await asyncio.sleep(2 * FAST.request_seconds)
    return web.Response(text=f"{len(await request.read())}")


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(f"{len(message.data)}")
    return socket


@pytest.fixture
def app() -> web.Application:
    app = web.Application(client_max_size=1024 * 1024)
    app.router.add_post("/slow", slow)
    app.router.add_get("/echo", echo)
    return app


@pytest.mark.parametrize("sent", [b"", b"POST /sl", b"POST /slow HTTP/1.1\r\nHost: a\r\nX: "])
async def test_a_request_that_never_begins_is_closed(app: web.Application, sent: bytes) -> None:
    app[LIMITS] = FAST
    running = await serve(app, "127.0.0.1", 0)
    async with asyncio.timeout(8):
        assert await exchange(running.port, sent) == b""
    await running.cleanup()


async def test_bytes_that_are_no_http_are_not_sent_back(app: web.Application) -> None:
    running = await serve(app, "127.0.0.1", 0)
    answer = await exchange(running.port, b"GET / HTTP/1.1\r\nmarker: \x00\r\n\r\n")
    assert (status(answer), answer.partition(b"\r\n\r\n")[2]) == (400, b"this is not HTTP")
    assert b"aiohttp" not in answer
    await running.cleanup()


async def test_a_handler_may_take_longer_than_a_request(app: web.Application) -> None:
    app[LIMITS] = FAST
    running = await serve(app, "127.0.0.1", 0)
    body = bytes(500_000)
    async with Client(running.port) as client:
        for _ in range(2):
            await client.send(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert await client.status() == 200
    await running.cleanup()


async def test_a_websocket_may_say_any_number_of_things(app: web.Application) -> None:
    running = await serve(app, "127.0.0.1", 0)
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"http://127.0.0.1:{running.port}/echo") as socket,
        asyncio.timeout(20),
    ):
        for _ in range(3):
            await socket.send_str("a" * 100_000)
            assert await socket.receive_str() == "100000"
            await asyncio.sleep(0.6)  # in all longer than a pile of headers may lie
    await running.cleanup()
