"""What a hostile or broken client can do to the server: nothing much, and not for long."""

from __future__ import annotations

import asyncio
import gzip
import logging

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.web import Limits
from gateway.web.limits import MAX_BODY_BYTES
from tests.web.conftest import Bot, Start
from tests.web.raw import exchange, status

FAST = Limits(request_seconds=0.2, linger_seconds=0.1)
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


async def test_a_body_is_refused_by_its_announced_length_before_it_is_sent(start: Start) -> None:
    async with start(FAST) as running:
        answer = await exchange(running.port, HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
    assert status(answer) == 413


async def test_a_body_without_a_length_is_read_up_to_the_limit_only(start: Start) -> None:
    chunk = b"8000\r\n" + bytes(0x8000) + b"\r\n"
    async with start(FAST) as running:
        answer = await exchange(running.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 9)
    assert status(answer) == 413


@pytest.mark.parametrize("sent", [b"", b"POST /webh", HEAD, HEAD + b"X: "], ids=["idle", "line", "headers", "value"])
async def test_a_request_that_never_begins_is_closed(start: Start, sent: bytes) -> None:
    async with start(FAST) as running:
        assert await exchange(running.port, sent) == b""


async def test_a_dripping_header_is_closed(start: Start) -> None:
    async with start(FAST) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(HEAD)

        async def drip() -> None:
            while True:
                writer.write(b"X-Drip: 1\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        try:
            async with asyncio.timeout(2):
                assert await reader.read() == b""
        except ConnectionError:
            pass
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            writer.close()


async def test_a_body_that_does_not_come_in_time_is_answered_and_closed(start: Start) -> None:
    async with start(FAST) as running:
        answer = await exchange(running.port, HEAD + b"Content-Length: 100\r\n\r\nhalf")
    assert status(answer) == 408


@pytest.mark.parametrize("then", [b"", b"GET /livez HT"], ids=["silent", "half a request"])
async def test_a_connection_is_used_again_and_closed_when_idle(start: Start, then: bytes) -> None:
    ask = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with start(Limits(idle_seconds=0.3)) as running:
        answer = await exchange(running.port, ask + ask + then)
    assert answer.count(b"HTTP/1.1 200") == 2


async def test_beyond_the_limit_connections_are_closed_and_the_others_served(start: Start) -> None:
    async with start(Limits(connections=2)) as running:
        held = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        for reader, _ in held:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert await exchange(running.port) == b""
        for _, writer in held:
            writer.close()


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
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls to a plain port\r\n\r\n",
    ],
    ids=[
        "two framings",
        "two lengths",
        "xchunked",
        "plus",
        "space before colon",
        "folded",
        "bare line feeds",
        "two hosts",
        "long header",
        "many headers",
        "tls",
    ],
)
async def test_what_could_smuggle_a_request_is_refused_in_one_log_line(
    start: Start, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(FAST) as running:
        answer = await exchange(running.port, request_bytes)
    assert status(answer) == 400
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert all(record.exc_info is None and "\n" not in record.getMessage() for record in lines)
    assert len(lines) <= 1


EXPECT = HEAD + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"


async def test_a_broken_chunk_is_the_senders_fault(start: Start) -> None:
    async with start(FAST) as running:
        at_once = await exchange(running.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(EXPECT)
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.write(b"ZZ\r\n")
        async with asyncio.timeout(2):
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
    async with start(Limits(request_seconds=0.03, idle_seconds=0.03, linger_seconds=0.03)) as running:
        assert status(await exchange(running.port, request)) < 500
