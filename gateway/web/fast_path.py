"""A webhook's short way through the web server, where nothing is out of the ordinary.

Routes, middlewares, signals and an answer put together of objects serve any page; for a message they took longer than
to prove it and to read it.
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

__all__ = ["WEBHOOKS", "Take", "answer", "is_ordinary", "written"]

Take: TypeAlias = Callable[[web.BaseRequest, bytes], Awaitable[WebhookResponse]]
"""What becomes of a platform's request and its body."""

WEBHOOKS = web.AppKey("webhooks", Mapping[str, Take])
"""Of an application: each by its path."""


def is_ordinary(request: web.BaseRequest, most_bytes: int) -> bool:
    """Whether all of a request is there, as it is, of a client that stays: then nothing needs to be waited for."""
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
    """A channel's answer as aiohttp sends it."""
    return web.Response(status=response.status, headers=dict(response.headers), body=response.body)


_BODILESS = (204, 304)
_OURS = frozenset({"connection", "content-length", "date", "server", "transfer-encoding"})
_UNREAD_BYTES = 16 * 1024


class Written(web.StreamResponse):
    """The answer to an ordinary request as the bytes it is; one may answer any number of them."""

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
            await request.writer.drain()  # the client does not read what it is sent

    async def write_eof(self, data: bytes = b"") -> None:
        """All is written."""


def written(response: WebhookResponse) -> web.StreamResponse:
    """The answer to an ordinary request. Raises ValueError for a header that would end before its end."""
    known = _written(response.status, tuple(response.headers.items()), response.body, int(time.time()))
    if known is not None:
        return known
    mended = answer(response)
    mended.headers[hdrs.SERVER] = "-"  # nobody is told what serves them
    return mended


@lru_cache(maxsize=256)  # a platform is told the same again and again
def _written(status: int, headers: tuple[tuple[str, str], ...], body: bytes, now: int) -> Written | None:
    """None for what does not say what it is, or does not leave to us where it ends: aiohttp mends that."""
    names = {name.lower() for name, _ in headers}
    if status < 200 or status in _BODILESS or (body and "content-type" not in names) or not names.isdisjoint(_OURS):
        return None
    named = {hdrs.DATE: formatdate(now, usegmt=True), **dict(headers), hdrs.CONTENT_LENGTH: str(len(body))}
    lines = [f"{name}: {value}" for name, value in named.items()]
    if not all(map(str.isprintable, lines)):
        raise ValueError("a header of the answer holds a control character")
    head = "\r\n".join([f"HTTP/1.1 {status} {responses.get(status, '')}", *lines, "", ""])
    return Written(status, head.encode() + body)
