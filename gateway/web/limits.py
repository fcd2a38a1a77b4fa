"""How much and how slowly a client may send: enforced before any of it reaches a handler.

aiohttp by itself keeps a connection that never finishes its first request for ever, decompresses a body before anybody
has proven anything, and logs a traceback with the sender's bytes for each broken request.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from gateway.observe import RateLimitFilter, describe_error
from gateway.web import webhooks
from gateway.web.fast_path import Written

__all__ = ["LIMITS", "MAX_BODY_BYTES", "Limits", "handler_args", "limit_bodies"]

MAX_BODY_BYTES = 256 * 1024
"""No platform's webhook comes near it."""

_VERSIONS = (HttpVersion10, HttpVersion11)
_TEXT = "this is not HTTP"


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
    """All of them, full of unfinished bodies, hold 128 MiB. For one more, another is closed: one that never sent a
    whole request, else one that is idle, else the one that has been served longest. So nobody can hold them all, and
    behind a proxy, where all have one address, nobody is refused for another's."""


LIMITS = web.AppKey("limits", Limits)


def handler_args(limits: Limits) -> dict[str, Any]:
    """Return how aiohttp is to read a connection. Each of its runners takes that from the application it runs."""
    return {
        "auto_decompress": False,
        "max_headers": limits.headers,
        "logger": _server_log(),
        "keepalive_timeout": limits.idle_seconds,
        "lingering_time": limits.linger_seconds,
    }


def limit_bodies(app: web.Application, limits: Limits) -> None:
    """Let no request reach a handler of `app` before its body is there: plain, small enough and in time."""

    @web.middleware
    async def whole_body(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = await _read(request, limits.request_seconds)
        if refusal is None:
            return await handler(request)
        refusal.force_close()
        if not request.content.is_eof() and request.content.total_compressed_bytes is not None:
            # Somebody else's server, which would unpack the rest of the body to pass it over. Its sender may miss the
            # answer, which no platform does: none packs what it sends.
            await refusal.prepare(request)
            await refusal.write_eof()
            request.protocol.force_close()
        return refusal

    app[LIMITS] = limits
    app.middlewares.append(whole_body)


async def _read(request: web.Request, seconds: float) -> web.StreamResponse | None:
    """Read the body; the answer when it is refused."""
    if request.version not in _VERSIONS:  # an answer of aiohttp's would begin with the version it was asked in
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(_TEXT)}\r\n"
        return Written(400, f"{head}Connection: close\r\n\r\n{_TEXT}".encode())
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
    logger.filters[:] = [RateLimitFilter(_failure), _without_bytes]
    logging.getLogger(webhooks.__name__).filters[:] = [RateLimitFilter(_of_channel)]
    return logger
