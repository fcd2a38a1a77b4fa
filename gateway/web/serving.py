"""The HTTP server of `askfirst serve`, for any aiohttp application."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from aiohttp import hdrs, web

from gateway.web.fast_path import WEBHOOKS, is_ordinary, written
from gateway.web.limits import LIMITS, MAX_BODY_BYTES, ClientLimits, handler_args

_BACKLOG = 1024
_SHUTDOWN_SECONDS = 2.0
"""Time for running requests to finish at shutdown. A webhook needs a fraction of this time. The shutdown does not wait
for a client that stops reading the response."""

_Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Running:
    """A listening server."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server) -> None:
        self._runner, self._server = runner, server

    @property
    def port(self) -> int:
        """The port of the listening socket, also when port 0 was requested."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def cleanup(self) -> None:
        """Stop accepting connections, let running requests finish, and shut the application down."""
        self._server.close()
        await self._runner.cleanup()


async def serve(app: web.Application, host: str, port: int) -> Running:
    """Serve an application: a gateway's own, or another with a gateway's as sub-application. Port 0 takes any free
    port.

    The limits of `ClientLimits` apply before a handler is called. Raises OSError when the address cannot be bound.
    """
    limits = app.get(LIMITS) or ClientLimits()
    runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    manager = runner.server
    if manager is None:
        raise RuntimeError("the web server was not set up")
    manager.request_handler = _directly(app, manager.request_handler)
    connections = ConnectionPool(limits)
    try:
        # asyncio accepts as many connections at a time as its backlog. When the process has no file descriptor left,
        # each accept fails, is logged, and schedules as many again a second later. A backlog of one keeps that at one.
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(manager, connections), host, port, backlog=1
        )
        for listening in server.sockets:
            _let_wait(listening.fileno(), limits)
    except BaseException:
        await runner.cleanup()
        raise
    return Running(runner, server)


def _directly(app: web.Application, otherwise: _Handler) -> _Handler:
    """Return a handler that serves the application's ordinary webhooks directly and passes other requests to
    `otherwise`.

    Pipelined requests wait for the queue first.
    """
    takes = app.get(WEBHOOKS, {})

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        if connection.headers_received():
            await connection.turn()
        request.content.on_eof(connection.whole)
        take = takes.get(request.raw_path)
        if take is None or not is_ordinary(request, MAX_BODY_BYTES):
            return await otherwise(request)
        return written(await take(request, request.content.read_nowait()))

    return handle


def _let_wait(listening: int, limits: ClientLimits) -> None:
    """Set the listening socket's backlog, and the timeout of unread responses on the connections."""
    with socket.socket(fileno=os.dup(listening)) as same:
        same.listen(_BACKLOG)
        if user_timeout := getattr(socket, "TCP_USER_TIMEOUT", None):  # Linux: accepted connections inherit it
            same.setsockopt(socket.IPPROTO_TCP, user_timeout, int(limits.unread_seconds * 1000))


_HEAD_BYTES = 32 * 1024
_LAST_SECONDS = 1.0
_FAREWELL_SECONDS = 0.05
"""Delay before a half-closed connection without a running request is closed."""
_APART_SECONDS = 0.002
"""Interval between pipelined requests, 500 a second over all clients. Platforms and proxies wait for an answer before
the next request. A client with pipelined requests must leave the processor to other clients and to the store's
thread."""


class Connection(web.RequestHandler):
    """The connection of a client, with a deadline and a byte limit on request headers."""

    __slots__ = ("_all", "_among", "_deadline", "_leaving", "_news", "_room", "_turn")

    def __init__(self, server: web.Server, connections: ConnectionPool) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **connections.handler_args)
        self._all = connections
        self._room: float = _HEAD_BYTES
        self._news = False
        self._turn: asyncio.Future[None] | None = None
        self._leaving = False

    @property
    def leaving(self) -> bool:
        """True if the client has closed the sending side."""
        return self._leaving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._among = self._all.add(self, transport)
        self._deadline = self._loop.call_later(self._all.limits.request_seconds, transport.abort)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if data:  # aiohttp calls this with no data to resume parsing
            self._news = True
            self._room -= len(data)
            if self._room < 0 and self in self._among:
                self._room = math.inf
                self._end_in(_LAST_SECONDS, self._among[self].abort)
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp leaves it at nothing; asyncio asks for it
        """Keep a half-closed connection open until all requests are answered. Returns False to let the connection
        close."""
        self._leaving = True
        if self._among is self._all.served or self._turn is not None:
            return True
        if self._news and self in self._among:  # this may be a whole request, which is parsed shortly
            self._end_in(_FAREWELL_SECONDS, self._among[self].close)
            return True
        return False

    def headers_received(self) -> bool:
        """Record the complete headers of a request. Return True if the request was pipelined behind the previous
        one."""
        if not self._leaving:  # otherwise the rest of the request has arrived already, or never will
            self._deadline.cancel()
        self._room = math.inf
        hurried, self._news = not self._news, False
        return hurried

    async def turn(self) -> None:
        """Wait for the turn of this pipelined request."""
        self._deadline.cancel()
        self._turn = self._all.turn()
        await self._turn
        self._turn = None

    def whole(self) -> None:
        """Record the complete body of a request. Later bytes belong to the next request."""
        self._deadline.cancel()
        self._room = _HEAD_BYTES
        self._move(self._all.served)

    def set_parser(self, *parser: Any, **more: Any) -> None:
        """Lift the byte limit: the following bytes are WebSocket messages, not request headers."""
        self._room = math.inf
        super().set_parser(*parser, **more)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response, including a file's bytes, and then mark the connection as idle."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._room = min(self._room, _HEAD_BYTES)
            self._move(self._all.idle)
            if self._leaving and self in self._among:
                self._end_in(_FAREWELL_SECONDS, self._among[self].close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._deadline.cancel()
        self._among.pop(self, None)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Return the error response for unparsable HTTP, without the sender's bytes and the Server header."""
        answer = super().handle_error(request, status, exc, message and "this is not HTTP")
        answer.headers[hdrs.SERVER] = "-"
        return answer

    def _move(self, among: _Open) -> None:
        if (transport := self._among.pop(self, None)) is not None:
            among[self] = transport
            self._among = among

    def _end_in(self, seconds: float, end: Callable[[], None]) -> None:
        self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, end)


_Open: TypeAlias = OrderedDict[Connection, asyncio.Transport]
"""Open connections, ordered by the time of joining the group."""


class ConnectionPool:
    """All connections of a server, grouped by state."""

    def __init__(self, limits: ClientLimits) -> None:
        self.limits = limits
        self.handler_args = {**handler_args(limits), "access_log": None}
        self.silent: _Open = OrderedDict()
        """Connections without a whole request yet."""
        self.idle: _Open = OrderedDict()
        """Connections with all requests answered, or with a pipelined request waiting in the queue."""
        self.served: _Open = OrderedDict()
        self._line: deque[asyncio.Future[None]] = deque()

    def add(self, connection: Connection, transport: asyncio.Transport) -> _Open:
        """Add a connection. Over the limit, first abort another connection: silent before idle before served, the
        oldest first."""
        groups = (self.silent, self.idle, self.served)
        if sum(map(len, groups)) >= self.limits.connections:
            _, longest = next(group for group in groups if group).popitem(last=False)
            longest.abort()
        self.silent[connection] = transport
        return self.silent

    def turn(self) -> asyncio.Future[None]:
        """Return a future, resolved by the queue in order. The queue releases a waiter every 2 milliseconds."""
        loop = asyncio.get_running_loop()
        if not self._line:
            loop.call_later(_APART_SECONDS, self._next)
        self._line.append(loop.create_future())
        return self._line[-1]

    def _next(self) -> None:
        while self._line:
            first = self._line.popleft()
            if not first.done():  # skip waiters with a closed connection
                first.set_result(None)
                break
        if self._line:
            asyncio.get_running_loop().call_later(_APART_SECONDS, self._next)


def gone(request: web.BaseRequest) -> bool:
    """Return True if no client reads a response without an end.

    A disconnecting client only closes the sending side. Only a write would show whether the client still reads.
    """
    connection = request.protocol
    return request.transport is None or (isinstance(connection, Connection) and connection.leaving)
