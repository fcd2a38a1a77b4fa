"""The application under `serve`, under an author's runner, and inside another application: equally guarded."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.web import serve
from gateway.web.limits import MAX_BODY_BYTES
from tests.web.conftest import Bot, page
from tests.web.raw import exchange, status
from tests.web.test_limits import FAST

HOST = b"Host: 127.0.0.1\r\n"


def alone(app: web.Application) -> web.Application:
    return app


def within(app: web.Application) -> web.Application:
    whole = web.Application()
    whole.add_subapp("/bot", app)
    return whole


Put = Callable[[web.Application], web.Application]
PREFIX: dict[Put, bytes] = {alone: b"", within: b"/bot"}


@contextlib.asynccontextmanager
async def by_serve(app: web.Application) -> AsyncIterator[int]:
    running = await serve(app, "127.0.0.1", 0)
    yield running.port
    await running.cleanup()


@contextlib.asynccontextmanager
async def by_runner(app: web.Application) -> AsyncIterator[int]:
    runner = web.AppRunner(app, shutdown_timeout=0.1, lingering_time=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


Run = Callable[[web.Application], contextlib.AbstractAsyncContextManager[int]]
pytestmark = pytest.mark.parametrize(
    ("run", "put"),
    [(by_serve, alone), (by_serve, within), (by_runner, alone), (by_runner, within)],
    ids=["serve", "serve a part", "a runner", "a part under a runner"],
)


async def test_a_packed_body_is_not_unpacked(bot: Bot, run: Run, put: Put) -> None:
    seen: list[web.Request] = []

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        seen.append(request)
        return await handler(request)

    app = put(page(bot))
    app.middlewares.insert(0, note)
    bomb = gzip.compress(bytes(128 * 1024 * 1024), 9)
    assert len(bomb) < MAX_BODY_BYTES
    head = b"POST %s/webhooks/webchat HTTP/1.1\r\n%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with run(app) as port:
        answer = await exchange(port, head % (PREFIX[put], HOST, len(bomb)) + bomb)
    may_miss_it = run is by_runner and put is within
    assert status(answer) in ((415, 0) if may_miss_it else (415,))
    assert b"aiohttp" not in answer
    assert seen[0].content.total_bytes <= 1024 * 1024


@pytest.mark.parametrize("version", [b" HTTP/2.0", b" HTTP/0.9", b""])
async def test_another_version_is_refused(bot: Bot, run: Run, put: Put, version: bytes) -> None:
    async with run(put(page(bot))) as port:
        answer = await exchange(port, b"GET %s/livez%s\r\n%s\r\n" % (PREFIX[put], version, HOST))
    assert status(answer) == 400
    assert b"live" not in answer


@pytest.mark.parametrize(
    ("request_bytes", "answered"),
    [
        (b"POST %s/webhooks/webchat HTTP/1.1\r\n%sContent-Length: 262145\r\nConnection: close\r\n\r\n", 413),
        (b"POST %s/webhooks/webchat HTTP/1.1\r\n%sContent-Length: 9\r\n\r\nhalf", 408),
        (b"POST %s/webhooks/webchat HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n5\r\nhalf", 408),
        (b"POST %s/webhooks/webchat HTTP/1.1\r\n%sContent-Length: 2\r\nConnection: close\r\n\r\n{}", 401),
        (b"GET %s/nowhere HTTP/1.1\r\n%sConnection: close\r\n\r\n", 404),
        (b"PUT %s/webhooks/webchat HTTP/1.1\r\n%sConnection: close\r\n\r\n", 405),
        (b"GET %s/livez HTTP/1.1\r\n%sConnection: close\r\n\r\n", 200),
    ],
    ids=["too large", "slow", "slow chunks", "forged", "nowhere", "no such method", "right"],
)
async def test_limits_hold_and_no_server_named(
    bot: Bot, run: Run, put: Put, request_bytes: bytes, answered: int
) -> None:
    async with run(put(page(bot, FAST))) as port:
        answer = await exchange(port, request_bytes % (PREFIX[put], HOST))
    assert status(answer) == answered
    assert b"Server:" not in answer
    assert b"aiohttp" not in answer
