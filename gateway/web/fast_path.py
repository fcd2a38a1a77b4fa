"""Fast path for ordinary webhooks: a request without special needs skips aiohttp's routing.

aiohttp's routes, middlewares, signals and response objects took longer than the verification and parsing of a message.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http.client import responses
from typing import TypeAlias

from aiohttp import HttpVersion11, hdrs, web

from channels import WebhookResponse

Take: TypeAlias = Callable[[web.BaseRequest, bytes], Awaitable[WebhookResponse]]
"""Handles a platform's request and body."""

WEBHOOKS = web.AppKey("webhooks", Mapping[str, Take])
"""The webhook handlers of an application, by path."""


def is_ordinary(request: web.BaseRequest, most_bytes: int) -> bool:
    """Return True if the whole plain body of an HTTP/1.1 POST is there already and the client keeps the connection."""
    headers = request.headers
    return (
        request.content.is_eof()
        and request.keep_alive
        and request.version == HttpVersion11
        and request.method == hdrs.METH_POST
        and (request.content_length or most_bytes + 1) <= most_bytes
        and hdrs.CONTENT_ENCODING not in headers
        and hdrs.EXPECT not in headers
    )


def answer(response: WebhookResponse) -> web.Response:
    """Convert a channel's answer to an aiohttp response."""
    return web.Response(status=response.status, headers=dict(response.headers), body=response.body)


_BODILESS = (204, 304)
_OURS = frozenset({"connection", "content-length", "date", "server", "transfer-encoding"})
_UNREAD_BYTES = 16 * 1024


class SerializedResponse(web.StreamResponse):
    """Preserialized response to an ordinary request. An instance can answer any number of requests."""

    def __init__(self, status: int, text: bytes) -> None:
        super().__init__(status=status)
        self._keep_alive = True
        self._text = text

    async def prepare(self, request: web.BaseRequest) -> None:
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        transport.write(self._text)
        if transport.get_write_buffer_size() > _UNREAD_BYTES:
            await request.writer.drain()  # wait, because the client does not read its responses

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` has written the whole response."""


def written(response: WebhookResponse) -> web.StreamResponse:
    """Return the response to an ordinary request. Raises ValueError for a header with a control character."""
    known = _written(response.status, tuple(response.headers.items()), response.body, int(time.time()))
    if known is not None:
        return known
    mended = answer(response)
    mended.headers[hdrs.SERVER] = "-"  # hide the server's name and version
    return mended


@lru_cache(maxsize=256)  # platforms get the same answer many times
def _written(status: int, headers: tuple[tuple[str, str], ...], body: bytes, now: int) -> SerializedResponse | None:
    """Return the serialized response, or None when aiohttp must complete the response.

    aiohttp completes three kinds: a body without Content-Type, a status without a body, and own framing headers.
    """
    names = {name.lower() for name, _ in headers}
    if status < 200 or status in _BODILESS or (body and "content-type" not in names) or not names.isdisjoint(_OURS):
        return None
    named = {hdrs.DATE: formatdate(now, usegmt=True), **dict(headers), hdrs.CONTENT_LENGTH: str(len(body))}
    lines = [f"{name}: {value}" for name, value in named.items()]
    if not all(map(str.isprintable, lines)):
        raise ValueError("a header of the answer holds a control character")
    head = "\r\n".join([f"HTTP/1.1 {status} {responses.get(status, '')}", *lines, "", ""])
    return SerializedResponse(status, head.encode() + body)
