"""The HTTP server of `askfirst serve`, for any aiohttp application."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from aiohttp import web

from gateway.web.connections import Connection, ConnectionPool
from gateway.web.fast_path import WEBHOOKS, is_ordinary, written
from gateway.web.limits import LIMITS, MAX_BODY_BYTES, ClientLimits

__all__ = ["Running", "serve"]

_BACKLOG = 1024
_SHUTDOWN_SECONDS = 2.0
"""Time for running requests to finish at shutdown. A webhook needs a fraction of it, and a client that does not read
its response is not waited for."""

_Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Running:
    """A listening server."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server) -> None:
        self._runner, self._server = runner, server

    @property
    def port(self) -> int:
        """The port that the server listens on, also when port 0 was requested."""
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
    """Return a handler that serves the application's ordinary webhooks itself and passes other requests to `otherwise`.

    Pipelined requests wait for their turn first.
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
    """Set the listening socket's backlog, and the timeout of unread responses on its connections."""
    with socket.socket(fileno=os.dup(listening)) as same:
        same.listen(_BACKLOG)
        if user_timeout := getattr(socket, "TCP_USER_TIMEOUT", None):  # Linux: accepted connections inherit it
            same.setsockopt(socket.IPPROTO_TCP, user_timeout, int(limits.unread_seconds * 1000))
