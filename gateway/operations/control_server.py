"""Server of the control socket: takes operators' commands on a socket file beside the store of a running gateway.

Only the gateway's own user can connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from inspect import signature
from pathlib import Path

from aiohttp import web

from channels import AskfirstError
from gateway.operations.operator import Operator

OPERATIONS = frozenset(
    {
        "pending",
        "action",
        "cancel",
        "settle",
        "dead",
        "letter",
        "replay",
        "drop",
        "send",
        "waiting",
        "put_aside",
        "drop_all",
        "people",
        "admit",
        "expel",
        "end_sessions",
        "usage",
        "audit",
        "verify_audit",
        "conversations",
        "history",
        "search",
        "export",
        "forget",
    }
)
LONGEST_PATH = 103
"""Bytes of a socket's path: sockaddr_un holds 108 on Linux (unix(7)) and 104 on macOS, with a zero at the end."""
_SHUTDOWN_SECONDS = 2.0


def store_file(url: str) -> Path | None:
    """Return the file of an embedded store. None for any other store."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def socket_file(store: Path) -> Path:
    """Return the socket file of this store's server. A link stands there when the path would be too long."""
    return store.with_name(f"{store.name}.sock")


@contextlib.asynccontextmanager
async def control(operator: Operator, store: Path | None) -> AsyncIterator[None]:
    """Serve operators' commands for the gateway's store for the length of the block.

    For a store in a file, listen on a socket file beside it. For any other store (None), commands write to the store
    themselves. The caller owns the file, so an existing socket file was left by a dead server. Raises AskfirstError
    when the socket file cannot be made.
    """
    await operator.remember()
    if store is None:
        yield
        return

    async def answer(request: web.Request) -> web.Response:
        return await _answer(operator, request)

    app = web.Application()
    app.router.add_post("/{operation}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        listening, place = await asyncio.to_thread(_bind, socket_file(store))
    except OSError as error:
        await runner.cleanup()
        raise AskfirstError(
            f"{socket_file(store)} cannot be made ({error.strerror}): it is how commands reach this server. "
            "Name a store on a local disk of this user in ASKFIRST_STORE."
        ) from error
    try:
        await web.SockSite(runner, listening).start()
        yield
    finally:
        await runner.cleanup()
        await asyncio.to_thread(_remove, socket_file(store), place)


async def _answer(operator: Operator, request: web.Request) -> web.Response:
    operation = request.match_info["operation"]
    if operation not in OPERATIONS:
        raise web.HTTPNotFound
    try:
        arguments = await request.json()
        if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
            raise TypeError
        signature(getattr(operator, operation)).bind(**arguments)
    except (ValueError, TypeError):
        return web.json_response({"error": f"no JSON object of the texts that {operation} takes"}, status=400)
    try:
        return web.json_response({"result": await operator.run(operation, arguments)})
    except AskfirstError as error:
        return web.json_response({"error": str(error)}, status=409)


def _bind(name: Path) -> tuple[socket.socket, Path]:
    """Bind a socket at this name, for the owner's use alone. Return the socket with the real path."""
    name.unlink(missing_ok=True)
    place = name
    if len(os.fsencode(name)) > LONGEST_PATH:
        place = Path(tempfile.mkdtemp(prefix="askfirst-")) / "sock"
        name.symlink_to(place)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # a mode set after bind() would come too late
    try:
        listening.bind(str(place))
    finally:
        os.umask(before)
    return listening, place


def _remove(name: Path, place: Path) -> None:
    with contextlib.suppress(OSError):  # the next start replaces files that cannot be removed
        for path in (name, place):
            path.unlink(missing_ok=True)
        if place.parent != name.parent:
            place.parent.rmdir()
