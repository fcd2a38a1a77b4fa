"""Limits on the size and speed of client requests, enforced before a handler runs.

By default aiohttp keeps a connection with an unfinished first request for ever, decompresses bodies of unverified
senders, and logs a traceback with the sender's bytes for each broken request.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from gateway.logs import RateLimitFilter, describe_error
from gateway.observe.event_log import REFUSALS
from gateway.web.fast_path import SerializedResponse

MAX_BODY_BYTES = 256 * 1024
"""Largest request body. Webhooks of all platforms are far smaller."""

_VERSIONS = (HttpVersion10, HttpVersion11)
_TEXT = "this is not HTTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits for a client, and for all clients together."""

    request_seconds: float = 10.0
    """Timeout from the connection to the end of the first request's headers, and again for each request's body."""
    idle_seconds: float = 75.0
    """Keep-alive timeout between two requests of a connection."""
    unread_seconds: float = 30.0
    """Timeout for a client that reads no byte of a waiting response."""
    linger_seconds: float = 1.0
    """Time limit for reading the rest of a refused body, so the client sees the response."""
    headers: int = 64
    """Header count of a request, each of at most 8 KiB. After 32 KiB without a complete request a client gets another
    second."""
    connections: int = 400
    """Open connections. All together, full of unfinished bodies, they hold 128 MiB. A further connection aborts
    another: first a connection without a whole request, then an idle connection, else the longest served. No client can
    hold all connections. The limit is not per address: clients behind a proxy share an address."""


LIMITS = web.AppKey("limits", ClientLimits)


def handler_args(limits: ClientLimits) -> dict[str, Any]:
    """Return aiohttp's connection options. Each aiohttp runner takes these options from its application."""
    return {
        "auto_decompress": False,
        "max_headers": limits.headers,
        "logger": _server_log(),
        "keepalive_timeout": limits.idle_seconds,
        "lingering_time": limits.linger_seconds,
    }


def limit_bodies(app: web.Application, limits: ClientLimits) -> None:
    """Add a middleware that reads each body before the handler runs, and refuses large, compressed and late bodies."""

    @web.middleware
    async def whole_body(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = await _read(request, limits.request_seconds)
        if refusal is None:
            return await handler(request)
        refusal.force_close()
        if not request.content.is_eof() and request.content.total_compressed_bytes is not None:
            # This runs under another application's server, which would decompress the rest of the body to skip it. The
            # sender may miss the response. No platform is affected, because none compresses its requests.
            await refusal.prepare(request)
            await refusal.write_eof()
            request.protocol.force_close()
        return refusal

    app[LIMITS] = limits
    app.middlewares.append(whole_body)


async def _read(request: web.Request, seconds: float) -> web.StreamResponse | None:
    """Read the body. Return None for a complete body, else the refusing response."""
    if request.version not in _VERSIONS:  # aiohttp's own response would begin with the requested version
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(_TEXT)}\r\n"
        return SerializedResponse(400, f"{head}Connection: close\r\n\r\n{_TEXT}".encode())
    if hdrs.CONTENT_ENCODING in request.headers:
        return web.Response(status=415, text="send the body without Content-Encoding")
    if (request.content_length or 0) > MAX_BODY_BYTES:
        return web.Response(status=413, text="the body is too large")
    try:
        if request.content.is_eof():  # the body usually arrives with the headers: skip the timer
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


def _failure(record: logging.LogRecord) -> str | None:
    return "failure" if record.exc_info and record.exc_info[1] else None


def _without_bytes(record: logging.LogRecord) -> bool:
    """Log filter: replace the sender's bytes with the kind and place of the error."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"  # the sender's fault
    if error is not None:
        record.msg, record.args = "a request could not be handled: %s", (describe_error(error),)
        record.exc_info = record.exc_text = None
    return True


def _of_channel(record: logging.LogRecord) -> tuple[str, str, str]:
    about = vars(record)
    return record.msg, str(about.get("channel")), str(about.get("reason"))


def _server_log() -> logging.Logger:
    """Return the server's logger. This logger and the webhooks' logger write at most a line a second of each kind."""
    logger = logging.getLogger("gateway.web.http")
    logger.filters[:] = [RateLimitFilter(_failure), _without_bytes]
    logging.getLogger(REFUSALS).filters[:] = [RateLimitFilter(_of_channel)]
    return logger
