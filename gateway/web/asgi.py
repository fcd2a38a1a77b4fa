"""The gateway as an ASGI application, for servers like uvicorn and for FastAPI, Starlette and Django.

Each request is forwarded to the gateway's own aiohttp application over a private Unix socket. Streams, file ranges and
body limits therefore behave the same under every server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from channels import AskfirstError
from gateway.logs import describe_error
from gateway.web.limits import MAX_BODY_BYTES, ClientLimits

log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""ASGI version 3: https://asgi.readthedocs.io/en/latest/specs/main.html."""

_HOP_BY_HOP = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Hop-by-hop request headers, not forwarded (RFC 9110, 7.6.1)."""
_OF_THE_SERVER = frozenset({b"connection", b"date", b"keep-alive", b"server", b"transfer-encoding"})
"""Response headers added by the ASGI server itself."""
_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Default headers of aiohttp's client, switched off. Only the request's own headers are forwarded."""
_SHUTDOWN_SECONDS = 2.0
_BACKLOG = 4096
"""Backlog of the private socket. Each request opens a connection, and asyncio fails to connect when the backlog is
full."""


class Gone(Exception):
    """The client disconnected."""


class Bridge:
    """The gateway's aiohttp application on a private Unix socket, with an HTTP client for it."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, app: web.Application) -> AsyncIterator[Bridge]:
        """Serve the application on a private socket for the length of the block."""
        runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_SECONDS, access_log=None)
        async with contextlib.AsyncExitStack() as stack:
            directory = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="askfirst-")
            stack.push_async_callback(asyncio.to_thread, directory.cleanup)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            place = str(Path(directory.name) / "asgi")  # mkdtemp makes the directory accessible to this user alone
            await web.UnixSite(runner, place, backlog=_BACKLOG).start()
            http = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(place, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                skip_auto_headers=_ADDED,
            )
            yield cls(await stack.enter_async_context(http))

    async def answer(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        """Forward one request and stream the response to `send`. `path` is the path within the gateway.

        Answers 408 for a late body and 413 for a body above the limit.
        """
        body = await _body(receive, ClientLimits().request_seconds)
        if isinstance(body, int):
            await _say(send, body, {408: "the body did not come in time", 413: "the body is too large"}[body])
            return
        query = scope.get("query_string", b"").decode("latin-1")
        # The Host header is forwarded unchanged. The host in this URL only names the private socket.
        url = URL(f"http://gateway{path}{'?' if query else ''}{query}", encoded=True)
        headers = CIMultiDict(_read(scope["headers"]))
        async with self._http.request(
            scope["method"], url, headers=headers, data=body or None, allow_redirects=False
        ) as response:
            kept = [(name.lower(), value) for name, value in response.raw_headers]
            head = {"status": response.status, "headers": [each for each in kept if each[0] not in _OF_THE_SERVER]}
            await send({"type": "http.response.start", **head})
            async for piece in response.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def asgi(
    enter: Callable[[], Awaitable[object]],
    leave: Callable[[], Awaitable[object]],
    bridge: Callable[[], Awaitable[Bridge]],
    *,
    prefix: str = "",
    otherwise: ASGIApp | None = None,
) -> ASGIApp:
    """Return the ASGI application. `enter` runs at the start of the server's lifespan and `leave` at its end.

    `bridge` returns the Bridge to the gateway and raises AskfirstError while the gateway does not run. Requests outside
    `prefix` go to `otherwise`, or are answered with 404 without one.
    """

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(enter, leave, receive, send)
            return
        path = _within(scope, prefix)
        if path is None and otherwise is not None:
            await otherwise(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif path is None:
            await _say(send, 404, "404: Not Found")
        else:
            await _http(bridge, scope, path, receive, send)

    return application


async def _http(bridge: Callable[[], Awaitable[Bridge]], scope: Scope, path: str, receive: Receive, send: Send) -> None:
    """Answer a request, and cancel the answer when the client disconnects. Answers 503 while the gateway does not
    run."""
    try:
        way = await bridge()
    except AskfirstError as error:
        log.error("a request was not taken: %s", error)
        await _say(send, 503, "the gateway does not run")
        return
    whole, begun = asyncio.Event(), False

    async def say(message: MutableMapping[str, Any]) -> None:
        nonlocal begun
        begun = True
        await send(message)

    async def receive_request() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if not message.get("more_body"):
            whole.set()
        return message

    async def watch() -> None:
        await whole.wait()
        while (await receive())["type"] != "http.disconnect":
            pass

    answering = asyncio.ensure_future(way.answer(scope, path, receive_request, say))
    watching = asyncio.ensure_future(watch())
    try:
        await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (answering, watching):
            task.cancel()
        failed, _ = await asyncio.gather(answering, watching, return_exceptions=True)
    if isinstance(failed, aiohttp.ClientConnectionError):
        if not begun:
            log.error("a request was not taken: %s", describe_error(failed))
            await _say(send, 503, "the gateway cannot be reached")
    elif isinstance(failed, Exception) and not isinstance(failed, Gone):
        raise failed


async def _lifespan(
    enter: Callable[[], Awaitable[object]], leave: Callable[[], Awaitable[object]], receive: Receive, send: Send
) -> None:
    for step, run in (("startup", enter), ("shutdown", leave)):
        await receive()
        try:
            await run()
        except Exception as error:
            # The server prints the message. AskfirstError texts say how to mend the fault.
            text = str(error) if isinstance(error, AskfirstError) else describe_error(error)
            await send({"type": f"lifespan.{step}.failed", "message": text})
            raise
        await send({"type": f"lifespan.{step}.complete"})


async def _body(receive: Receive, seconds: float) -> bytes | int:
    """Return the body of a request, or the status of a refusal: 408 for a late body, 413 for a body above the limit."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > MAX_BODY_BYTES:
                    return 413
                if not message.get("more_body"):
                    return b"".join(pieces)
    except TimeoutError:
        return 408


def _within(scope: Scope, prefix: str) -> str | None:
    """Return the path of a request within the gateway, percent-encoded as received, or None when it is outside
    `prefix`."""
    path, root = scope["path"], scope.get("root_path", "")
    raw: bytes | None = scope.get("raw_path")
    written = raw.decode("latin-1").partition("?")[0] if raw else quote(path)
    for front in (root, prefix):
        # A framework that mounts the gateway sets `root_path`. Older frameworks have already removed it from `path`.
        if front and (path == front or path.startswith(f"{front}/")):
            path = path[len(front) :]
            written = written.removeprefix(front) if written.startswith(front) else quote(path)
        elif front and front is prefix:
            return None
    return written or "/"


def _read(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    found = [(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in headers]
    return [(name, value) for name, value in found if name.lower() not in _HOP_BY_HOP]


async def _say(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
