"""How much and how slowly a client may send: enforced before any of it reaches a handler.

aiohttp by itself keeps a connection that never finishes its first request for ever, decompresses a body before anybody
has proven anything, and logs a traceback with the sender's bytes for each broken request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from gateway.observe import Seldom, describe_error
from gateway.web import webhooks
from gateway.web.direct import WEBHOOKS, is_ordinary, written

__all__ = ["MAX_BODY_BYTES", "Limits", "Running", "limit_bodies", "serve"]

MAX_BODY_BYTES = 256 * 1024
"""No platform's webhook comes near it."""

_BACKLOG = 1024
_HEAD_BYTES = 32 * 1024
_LAST_SECONDS = 1.0
_SHUTDOWN_SECONDS = 2.0
"""What a webhook needs is a fraction of it; a client that reads no answer is not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, and all of them together, may use."""

    request_seconds: float = 10.0
    """From the connection to the end of its first request's headers; and then for each request's body."""
    idle_seconds: float = 75.0
    """Between two requests of one connection."""
    unread_seconds: float = 30.0
    """How long a client may take nothing of an answer that waits for it."""
    linger_seconds: float = 1.0
    """How long a refused body is still read, so that the client sees the answer."""
    headers: int = 64
    """Of one request, of 8 KiB each at most. Who has sent 32 KiB and no request has one second more for it."""
    connections: int = 400
    """All of them, full of unfinished bodies, hold 128 MiB. One more, and the one that has gone longest without a
    request is closed: so nobody can hold them all, and behind a proxy, where all have one address, nobody is refused
    for another's."""


_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_LIMITS = web.AppKey("limits", Limits)


def limit_bodies(app: web.Application, limits: Limits) -> None:
    """Let no request reach a handler of `app` before its body is there: plain, small enough and in time."""

    @web.middleware
    async def whole_body(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = request.protocol if isinstance(request.protocol, _Connection) else None
        if connection is not None:
            connection.heard()
        refusal = await _read(request, limits.request_seconds)
        if refusal is not None:
            refusal.force_close()
            return refusal
        if connection is not None:
            connection.whole()
        return await handler(request)

    app[_LIMITS] = limits
    app.middlewares.append(whole_body)


async def _read(request: web.Request, seconds: float) -> web.Response | None:
    """Read the body; the answer when it is refused."""
    if hdrs.CONTENT_ENCODING in request.headers:
        return web.Response(status=415, text="send the body without Content-Encoding")
    if (request.content_length or 0) > MAX_BODY_BYTES:
        return web.Response(status=413, text="the body is too large")
    try:
        if request.content.is_eof():  # all of it came with the headers, as nearly always: no timer is needed
            await request.read()
        else:
            async with asyncio.timeout(seconds):
                await request.read()
    except web.HTTPRequestEntityTooLarge:
        return web.Response(status=413, text="the body is too large")
    except TimeoutError:
        return web.Response(status=408, text="the body did not come in time")
    except ConnectionError:
        return web.Response(status=400, text="the body broke off")
    return None


class _Connection(web.RequestHandler):
    """One client's. `others`: those that are open, the one that has gone longest without a request first."""

    __slots__ = ("_deadline", "_limits", "_others", "_room")

    def __init__(
        self, server: web.Server, limits: Limits, others: OrderedDict[_Connection, asyncio.Transport], **options: Any
    ) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._limits, self._others = limits, others
        self._room: float = _HEAD_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        if len(self._others) >= self._limits.connections:
            self._others.popitem(last=False)[1].abort()
        self._others[self] = transport
        self._deadline = self._loop.call_later(self._limits.request_seconds, transport.abort)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0 and self in self._others:
            self._room = math.inf
            self._deadline.cancel()
            self._deadline = self._loop.call_later(_LAST_SECONDS, self._others[self].abort)
        super().data_received(data)

    def heard(self) -> None:
        """The headers of a request are there; how much of a body may follow is looked at where it is read."""
        self._deadline.cancel()
        self._room = math.inf
        if self in self._others:
            self._others.move_to_end(self)

    def whole(self) -> None:
        """The body of a request is there: what comes now is another."""
        self._room = _HEAD_BYTES

    def connection_lost(self, exc: BaseException | None) -> None:
        self._deadline.cancel()
        self._others.pop(self, None)
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Of what is no request its sender is not told the bytes, nor who it is that could not read them."""
        answer = super().handle_error(request, status, exc, message and "this is not HTTP")
        answer.headers[hdrs.SERVER] = "-"
        return answer


class Running:
    """A server that listens."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server) -> None:
        self._runner, self._server = runner, server

    @property
    def port(self) -> int:
        """The port it listens on, also when any free one was asked for."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def cleanup(self) -> None:
        """Take no more connections, let running requests end, and shut the application down."""
        self._server.close()
        await self._runner.cleanup()


async def serve(app: web.Application, host: str, port: int) -> Running:
    """Serve an application of `web_app`; port 0 takes any free one. Raises OSError when it cannot listen there."""
    limits = app[_LIMITS]
    runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    manager = runner.server
    if manager is None:
        raise RuntimeError("the web server was not set up")
    manager.request_handler = _directly(app, manager.request_handler)
    connections: OrderedDict[_Connection, asyncio.Transport] = OrderedDict()
    log = _server_log()

    def connection() -> _Connection:
        return _Connection(
            manager,
            limits,
            connections,
            auto_decompress=False,
            max_headers=limits.headers,
            access_log=None,
            logger=log,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=limits.linger_seconds,
        )

    try:
        # asyncio accepts as many at a time as its backlog says. With no file left to be opened each of them fails by
        # itself, is logged, and begins as many anew a second later: one at a time stays one.
        server = await asyncio.get_running_loop().create_server(connection, host, port, backlog=1)
        for listening in server.sockets:
            _let_wait(listening.fileno(), limits)
    except BaseException:
        await runner.cleanup()
        raise
    return Running(runner, server)


def _directly(app: web.Application, otherwise: _Handler) -> _Handler:
    """A handler that takes the application's ordinary webhooks, and leaves the rest to `otherwise`."""
    takes = app.get(WEBHOOKS, {})

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        take, connection = takes.get(request.raw_path), request.protocol
        if take is None or not isinstance(connection, _Connection) or not is_ordinary(request, MAX_BODY_BYTES):
            return await otherwise(request)
        connection.heard()
        body = request.content.read_nowait()
        connection.whole()
        return written(await take(request, body))

    return handle


def _let_wait(listening: int, limits: Limits) -> None:
    """How many may wait to be accepted, and how long an answer to one of them may wait to be read."""
    with socket.socket(fileno=os.dup(listening)) as same:
        same.listen(_BACKLOG)
        if user_timeout := getattr(socket, "TCP_USER_TIMEOUT", None):  # Linux: each connection inherits it
            same.setsockopt(socket.IPPROTO_TCP, user_timeout, int(limits.unread_seconds * 1000))


def _failure(record: logging.LogRecord) -> str | None:
    return "failure" if record.exc_info and record.exc_info[1] else None


def _without_bytes(record: logging.LogRecord) -> bool:
    """Of what the server could not handle: what and where, without the sender's bytes."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"  # its sender's fault
    if error is not None:
        record.msg, record.args = "a request could not be handled: %s", (describe_error(error),)
        record.exc_info = record.exc_text = None
    return True


def _of_channel(record: logging.LogRecord) -> tuple[str, str, str]:
    about = vars(record)
    return record.msg, str(about.get("channel")), str(about.get("reason"))


def _server_log() -> logging.Logger:
    """The server's own. Neither it nor the webhooks' tells more than a line a second of what may befall any request."""
    logger = logging.getLogger("gateway.web.http")
    logger.filters[:] = [Seldom(_failure), _without_bytes]
    logging.getLogger(webhooks.__name__).filters[:] = [Seldom(_of_channel)]
    return logger
