"""How much and how slowly a client may send: enforced before any of it reaches a handler.

aiohttp by itself keeps a connection that never finishes its first request for ever, decompresses a body before anybody
has proven anything, and logs a traceback with the sender's bytes for each broken request.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.observe import describe_error

__all__ = ["MAX_BODY_BYTES", "Limits", "Running", "limit_bodies", "serve"]

MAX_BODY_BYTES = 256 * 1024
"""No platform's webhook comes near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, and all of them together, may use."""

    request_seconds: float = 10.0
    """From the connection to the end of its first request's headers; and then for each request's body."""
    idle_seconds: float = 75.0
    """Between two requests of one connection."""
    linger_seconds: float = 1.0
    """How long a refused body is still read, so that the client sees the answer."""
    connections: int = 800
    """Below the 1,024 open files that a process may have by default."""


_LIMITS = web.AppKey("limits", Limits)
_SILENT = web.AppKey("silent", dict[asyncio.BaseProtocol, asyncio.TimerHandle])
"""The connections whose first request has not come yet, and what will close them."""


def limit_bodies(app: web.Application, limits: Limits) -> None:
    """Let no request reach a handler of `app` before its body is there: plain, small enough and in time."""
    app[_LIMITS], app[_SILENT] = limits, {}
    app.middlewares.append(_whole_body)


@web.middleware
async def _whole_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    if closing := request.app[_SILENT].pop(request.protocol, None):
        closing.cancel()
    refusal = await _read(request, request.app[_LIMITS].request_seconds)
    if refusal is None:
        return await handler(request)
    refusal.force_close()
    return refusal


async def _read(request: web.Request, seconds: float) -> web.Response | None:
    """Read the body; the answer when it is refused."""
    if "Content-Encoding" in request.headers:
        return web.Response(status=415, text="send the body without Content-Encoding")
    if (request.content_length or 0) > MAX_BODY_BYTES:
        return web.Response(status=413, text="the body is too large")
    try:
        async with asyncio.timeout(seconds):
            await request.read()
    except web.HTTPRequestEntityTooLarge:
        return web.Response(status=413, text="the body is too large")
    except TimeoutError:
        return web.Response(status=408, text="the body did not come in time")
    except ConnectionError:
        return web.Response(status=400, text="the body broke off")
    return None


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
    limits, silent = app[_LIMITS], app[_SILENT]
    runner = web.AppRunner(
        app,
        auto_decompress=False,
        access_log=None,
        logger=_server_log(),
        keepalive_timeout=limits.idle_seconds,
        lingering_time=limits.linger_seconds,
        shutdown_timeout=10.0,
    )
    await runner.setup()
    make = runner.server
    if make is None:
        raise RuntimeError("the web server was not set up")
    loop = asyncio.get_running_loop()

    def connection() -> asyncio.Protocol:
        if len(make.connections) >= limits.connections:
            return _Refuse()
        protocol = make()

        def close() -> None:
            del silent[protocol]
            protocol.force_close()

        silent[protocol] = loop.call_later(limits.request_seconds, close)
        return protocol

    try:
        server = await loop.create_server(connection, host, port)
    except BaseException:
        await runner.cleanup()
        raise
    return Running(runner, server)


class _Refuse(asyncio.Protocol):
    """A connection beyond the limit: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _OneLine(logging.Filter):
    """Of what the server could not handle, one line a second: what and where, without the sender's bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        if record.created < self._next:
            self._left_out += 1
            return False
        record.msg, record.args = "a request could not be handled: %s", (describe_error(error),)
        record.exc_info = record.exc_text = None
        record.left_out, self._left_out, self._next = self._left_out, 0, record.created + 1.0
        return True


def _server_log() -> logging.Logger:
    logger = logging.getLogger("gateway.web.http")
    logger.filters[:] = [_OneLine()]
    return logger
