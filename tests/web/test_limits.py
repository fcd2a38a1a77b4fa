"""A hostile or broken client takes little from the server, and not for long."""

from __future__ import annotations

import asyncio
import gzip
import logging
import time

import aiohttp
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.web import ClientLimits, serve
from gateway.web.limits import LIMITS, MAX_BODY_BYTES
from tests.web.conftest import Bot, Start
from tests.web.raw import Client, exchange, status

FAST = ClientLimits(request_seconds=0.5, linger_seconds=0.1)
"""For tests about time. Elsewhere a busy machine may need longer to send a request."""
LIVE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HEAD = b"POST /webhooks/webchat HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def test_a_compressed_body_is_refused_and_never_unpacked(bot: Bot, start: Start) -> None:
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    assert len(bomb) < MAX_BODY_BYTES
    async with start(), aiohttp.ClientSession() as http:
        for encoding in ("gzip", "deflate", "br", "identity", "nonsense"):
            async with http.post(
                f"{bot.url}/webhooks/webchat", data=bomb, headers={"Content-Encoding": encoding}
            ) as response:
                assert response.status == 415
                assert "Server" not in response.headers


async def test_twenty_bombs_are_refused_unread(bot: Bot, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The bodies are not packed as declared: an attempt to unpack them would fail and be logged."""
    async with start(), aiohttp.ClientSession() as http:

        async def post(body: bytes) -> int:
            async with http.post(
                f"{bot.url}/webhooks/webchat", data=body, headers={"Content-Encoding": "gzip"}
            ) as response:
                return response.status

        assert set(await asyncio.gather(*(post(b"no gzip" * 30_000) for _ in range(20)))) == {415}
    assert caplog.records == []


async def test_a_body_without_a_length_is_read_up_to_the_limit_only(start: Start) -> None:
    chunk = b"8000\r\n" + bytes(0x8000) + b"\r\n"
    async with start(ClientLimits(linger_seconds=0.1)) as running:
        answer = await exchange(running.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 9)
    assert status(answer) == 413


@pytest.mark.parametrize("sent", [b"", b"POST /webh", HEAD, HEAD + b"X: "], ids=["idle", "line", "headers", "value"])
async def test_a_request_that_never_begins_is_closed(start: Start, sent: bytes) -> None:
    async with start(FAST) as running:
        assert await exchange(running.port, sent) == b""


@pytest.mark.parametrize("requests_before", [0, 2])
async def test_piled_up_headers_close_long_before_an_idle_connection(start: Start, requests_before: int) -> None:
    async with start() as running, Client(running.port) as client:
        for _ in range(requests_before):
            await client.send(LIVE)
            assert await client.status() == 200
        await client.send(HEAD + b"X: %s\r\n" % (b"a" * 8000) * 5)
        assert await client.rest() == b""


async def test_a_large_body_is_no_pile_of_headers(start: Start) -> None:
    body = b"a" * (MAX_BODY_BYTES - 1000)
    async with start() as running, Client(running.port) as client:
        for _ in range(2):
            await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert await client.status() == 401
        await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
        await asyncio.sleep(1.1)  # as long as headers would have
        await client.send(body[-1:])
        assert await client.status() == 401


@pytest.mark.parametrize(
    ("begins", "drips", "answered"),
    [
        (HEAD, b"X-Drip: 1\r\n", 0),
        (HEAD + b"X-Drip: ", b"1", 0),
        (HEAD + b"Content-Length: 100000\r\n\r\n", b"x", 408),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 408),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x", 408),
    ],
    ids=["headers", "a header", "a body", "chunks", "a chunk's name"],
)
async def test_slowly_dripping_request_is_closed(start: Start, begins: bytes, drips: bytes, answered: int) -> None:
    async with start(FAST) as running, Client(running.port) as client:
        await client.send(begins)

        async def drip() -> None:
            while True:
                await client.send(drips)
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert status(await client.rest()) == answered
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.parametrize("then", [b"", b"GET /livez HT"], ids=["silent", "half a request"])
async def test_a_connection_is_used_again_and_closed_when_idle(start: Start, then: bytes) -> None:
    ask = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with start(ClientLimits(idle_seconds=1.0)) as running:
        answer = await exchange(running.port, ask + ask + then)
    assert answer.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        b"POST / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 64 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls to a plain port\r\n\r\n",
    ],
    ids=lambda sent: ascii(sent[:60]),
)
async def test_ambiguous_framing_refused(start: Start, request_bytes: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with start() as running:
        answer = await exchange(running.port, request_bytes, b"GET /livez?smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (status(answer), body, answer.count(b"HTTP/1.")) == (400, b"this is not HTTP", 1)
    assert b"aiohttp" not in head
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert all(record.exc_info is None and record.levelname == "WARNING" for record in lines)
    assert len(lines) <= 1


async def test_bad_requests_are_one_log_line_a_second(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    async with start() as running:
        for _ in range(100):
            await exchange(running.port, b"GET / HTTP/1.1\r\nHost: a\r\nmarker: \x1b[31mmarker\x00\r\n\r\n")
    assert 1 <= len(caplog.records) <= 1 + time.monotonic() - began
    assert "marker" not in caplog.text


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
async def test_a_webhook_is_only_posted_to(start: Start, method: str) -> None:
    async with start() as running, Client(running.port) as client:
        await client.send(HEAD.replace(b"POST", method.encode()) + b"Connection: close\r\n\r\n")
        assert status(await client.rest()) == 405


@pytest.mark.parametrize(
    ("target", "answered"),
    [
        (b"http://evil.example/livez", 200),
        (b"http://evil.example/webhooks/webchat", 405),
        (b"//evil.example/livez", 404),
        (b"/livez/../chat/../nowhere", 404),
        (b"/%6civez", 200),
        (b"/" + b"a" * 8000, 404),
        (b"/" + b"a" * 9000, 400),
        (b"/a\x00b", 400),
        (b"/%00", 404),
        (b"/\xff\xfe", 400),
        (b"evil.example:443", 400),
        (b"*", 400),
        (b"http://[::1", 400),
        (b"/webhooks/" + b"%2e%2e%2f" * 500, 404),
        (b"/artifacts/" + b"a" * 7000, 404),
    ],
)
async def test_any_target_is_found_or_not_found(start: Start, target: bytes, answered: int) -> None:
    """An answer never repeats the target."""
    async with start() as running, Client(running.port) as client:
        await client.send(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = await client.rest()
    assert status(answer) == answered
    texts = {200: b"live", 400: b"this is not HTTP", 404: b"404: Not Found", 405: b"405: Method Not Allowed"}
    assert answer.partition(b"\r\n\r\n")[2] == texts[answered]


EXPECT = HEAD + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"


async def test_a_broken_chunk_is_the_senders_fault(start: Start) -> None:
    async with start(FAST) as running:
        at_once = await exchange(running.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(EXPECT)
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.write(b"ZZ\r\n")
        async with asyncio.timeout(60):
            in_the_middle = (await reader.read()).strip()
        writer.close()
    assert (status(at_once), status(in_the_middle)) == (400, 408)


async def test_a_client_that_goes_away_is_no_line_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    async with start() as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(EXPECT)
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.close()
        await writer.wait_closed()
        await exchange(running.port, b"GET /livez HTTP/1.0\r\n\r\n")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


ODD = st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=ODD, host=ODD, cookie=ODD, body=ODD)
async def test_no_bytes_are_answered_500(start: Start, path: bytes, host: bytes, cookie: bytes, body: bytes) -> None:
    request = b"POST /webhooks/webchat%s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        path,
        host,
        cookie,
        len(body),
        body,
    )
    async with start(ClientLimits(request_seconds=0.03, idle_seconds=0.03, linger_seconds=0.03)) as running:
        assert status(await exchange(running.port, request)) < 500


# ── an author's application under serve ──


SOON = ClientLimits(request_seconds=0.3)


async def slow(request: web.Request) -> web.Response:
    await asyncio.sleep(2 * SOON.request_seconds)
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


async def test_a_handler_may_take_longer_than_a_request(app: web.Application) -> None:
    app[LIMITS] = SOON
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
        asyncio.timeout(60),
    ):
        for _ in range(3):
            await socket.send_str("a" * 100_000)
            assert await socket.receive_str() == "100000"
            await asyncio.sleep(0.6)  # in all longer than a pile of headers may lie
    await running.cleanup()
