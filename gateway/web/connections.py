"""One client's connection, and all of them together: who may stay, whose turn it is, and who is still answered."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from aiohttp import hdrs, web

from gateway.web.limits import Limits, handler_args

__all__ = ["Connection", "Connections", "gone"]

_HEAD_BYTES = 32 * 1024
_LAST_SECONDS = 1.0
_FAREWELL_SECONDS = 0.05
"""How long the connection of a client that has said its last stays open with none of its requests in work."""
_APART_SECONDS = 0.002
"""500 a second, of all clients together. Platforms and proxies wait for an answer before they send the next request. A
client that does not wait must leave the processor to the others, and to the store's thread."""


class Connection(web.RequestHandler):
    """One client's."""

    __slots__ = ("_all", "_among", "_deadline", "_leaving", "_news", "_room", "_turn")

    def __init__(self, server: web.Server, connections: Connections) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **connections.handler_args)
        self._all = connections
        self._room: float = _HEAD_BYTES
        self._news = False
        self._turn: asyncio.Future[None] | None = None
        self._leaving = False

    @property
    def leaving(self) -> bool:
        """Whether the client has said that it sends nothing more."""
        return self._leaving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._among = self._all.add(self, transport)
        self._deadline = self._loop.call_later(self._all.limits.request_seconds, transport.abort)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if data:  # aiohttp itself calls it with nothing, to go on with what it has
            self._news = True
            self._room -= len(data)
            if self._room < 0 and self in self._among:
                self._room = math.inf
                self._end_in(_LAST_SECONDS, self._among[self].abort)
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp leaves it at nothing; asyncio asks for it
        """Keep the connection of a client that sends nothing more until what it has asked for is answered."""
        self._leaving = True
        if self._among is self._all.served or self._turn is not None:
            return True
        if self._news and self in self._among:  # it may be a whole request, which is taken up in a moment
            self._end_in(_FAREWELL_SECONDS, self._among[self].close)
            return True
        return False

    def heard(self) -> bool:
        """Note that the headers of a request are there. Return whether it came together with the one before it."""
        if not self._leaving:  # else the rest of it is there already, or never comes
            self._deadline.cancel()
        self._room = math.inf
        hurried, self._news = not self._news, False
        return hurried

    async def turn(self) -> None:
        """Wait until one of those that do not wait for answers may go on."""
        self._deadline.cancel()
        self._turn = self._all.turn()
        await self._turn
        self._turn = None

    def whole(self) -> None:
        """Note that the body of a request is there: what comes now is another."""
        self._deadline.cancel()
        self._room = _HEAD_BYTES
        self._move(self._all.served)

    def set_parser(self, *parser: Any, **more: Any) -> None:
        """Let any number of bytes come: they are the messages of a WebSocket, not the headers of a request."""
        self._room = math.inf
        super().set_parser(*parser, **more)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer, a file's bytes too; from then on the connection is idle."""
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
        """Of what is no request its sender is not told the bytes, nor who it is that could not read them."""
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
"""Open connections. The one that has been among them longest is the first."""


class Connections:
    """All of a server's."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.handler_args = {**handler_args(limits), "access_log": None}
        self.silent: _Open = OrderedDict()
        """They have not sent a whole request yet."""
        self.idle: _Open = OrderedDict()
        """What they asked for is answered, or waits for its turn."""
        self.served: _Open = OrderedDict()
        self._line: deque[asyncio.Future[None]] = deque()

    def add(self, connection: Connection, transport: asyncio.Transport) -> _Open:
        """Take one more. If there are too many, another is closed: one that is served only when all are."""
        groups = (self.silent, self.idle, self.served)
        if sum(map(len, groups)) >= self.limits.connections:
            _, longest = next(group for group in groups if group).popitem(last=False)
            longest.abort()
        self.silent[connection] = transport
        return self.silent

    def turn(self) -> asyncio.Future[None]:
        """Return the end of a line whose first goes on every two milliseconds."""
        loop = asyncio.get_running_loop()
        if not self._line:
            loop.call_later(_APART_SECONDS, self._next)
        self._line.append(loop.create_future())
        return self._line[-1]

    def _next(self) -> None:
        while self._line:
            first = self._line.popleft()
            if not first.done():  # else its client has gone
                first.set_result(None)
                break
        if self._line:
            asyncio.get_running_loop().call_later(_APART_SECONDS, self._next)


def gone(request: web.BaseRequest) -> bool:
    """Return whether nobody waits for more of an answer that has no end.

    A client that leaves says only that it sends nothing more. Whether it still reads is seen when it is written to.
    """
    connection = request.protocol
    return request.transport is None or (isinstance(connection, Connection) and connection.leaving)
