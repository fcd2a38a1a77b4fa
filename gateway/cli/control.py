"""The operator's commands, whether a server is running or not.

A server that runs on an SQLite file listens on a socket file beside it, for its own user alone. A command asks there;
when nobody listens it opens the store itself, which the operating system's lock allows to one process at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from channels import AskfirstError, Channel, Json
from channels.catalogue import load
from channels.direct import DirectChannel
from channels.webchat import WebChatChannel
from gateway.app import Home, home_of
from gateway.engine.operator import NotDone, Operator
from gateway.pending.seal import Keyring
from gateway.settings import Settings
from gateway.store.base import StoreRefused

__all__ = ["control", "operate", "socket_file", "store_file"]

OPERATIONS = frozenset({"pending", "action", "cancel", "settle", "dead", "letter", "replay", "drop", "send"})
LONGEST_PATH = 103
"""Bytes of a socket's path: sockaddr_un holds 108 on Linux (unix(7)) and 104 on macOS, with a zero at the end."""
_ANSWER_WITHIN = aiohttp.ClientTimeout(total=10)


def store_file(url: str) -> Path | None:
    """The file of an embedded store."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def socket_file(store: Path) -> Path:
    """Where the server of this store listens; a link to it where the path would be too long."""
    return store.with_name(f"{store.name}.sock")


@contextlib.asynccontextmanager
async def control(operator: Operator, store: Path | None) -> AsyncIterator[None]:
    """Listen for operators' commands. The caller owns the store, so a socket file that is there is a dead server's.

    Raises AskfirstError when no socket file can be made there.
    """
    if store is None:
        yield
        return
    await operator.remember()
    app = web.Application()
    app.router.add_post("/{operation}", lambda request: _answer(operator, request))
    runner = web.AppRunner(app, access_log=None)
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


def operate(settings: Settings, operation: str, **arguments: Json) -> Any:
    """Have the running server do it, or do it to the store when nothing runs. Raises AskfirstError."""
    store = store_file(settings.store)
    if store is None:
        raise AskfirstError("these commands work on an embedded store: ASKFIRST_STORE is no sqlite:///path")
    listening = socket_file(store)
    place = listening.readlink() if listening.is_symlink() else listening
    if place.exists():
        with contextlib.suppress(ConnectionError):
            return asyncio.run(_ask(place, operation, arguments))
    if not store.exists():
        raise AskfirstError(f"there is no store {store}: name the bot with --bot, or its store in ASKFIRST_STORE")
    return asyncio.run(_alone(home_of(settings), _channels(settings), operation, arguments))


async def _answer(operator: Operator, request: web.Request) -> web.Response:
    operation = request.match_info["operation"]
    if operation not in OPERATIONS:
        raise web.HTTPNotFound
    try:
        return web.json_response({"result": await getattr(operator, operation)(**await request.json())})
    except AskfirstError as error:
        return web.json_response({"error": str(error)}, status=409)


async def _ask(place: Path, operation: str, arguments: Mapping[str, Json]) -> Any:
    """Raises ConnectionError when no server listens there."""
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(place)), timeout=_ANSWER_WITHIN) as http,
            http.post(f"http://askfirst/{operation}", json=arguments) as response,
        ):
            answer = await response.json() if response.status in (200, 409) else {}
    except aiohttp.ClientConnectorError as error:
        raise ConnectionError(str(error)) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise AskfirstError("the server did not answer: look at its log, what was asked may have been done") from error
    if "result" not in answer:
        raise NotDone(answer.get("error", "the server could not do it: look at its log"))
    return answer["result"]


async def _alone(home: Home, channels: Mapping[str, Channel], operation: str, arguments: Mapping[str, Json]) -> Any:
    try:
        await home.store.open()
    except StoreRefused as error:
        raise AskfirstError(f"no server answers for this store, and it cannot be opened: {error}") from error
    try:
        operator = Operator(home.store, channels, Keyring(home.keys), bot=None)
        return await getattr(operator, operation)(**arguments)
    finally:
        await home.store.close()


def _channels(settings: Settings) -> Mapping[str, Channel]:
    """Every channel that a message could be written for, none of them started: nothing is sent from here."""
    channels: dict[str, Channel] = {
        DirectChannel.name: DirectChannel(),
        WebChatChannel.name: WebChatChannel(keys=(), hosts=()),
    }
    for name in settings.channels_on("polling"):
        channels[name] = load(name).from_settings(settings.channel_settings(name), way="polling")
    return channels


def _bind(name: Path) -> tuple[socket.socket, Path]:
    """A socket at this name that its owner alone may use, and where it really is."""
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
    for path in (name, place):
        path.unlink(missing_ok=True)
    if place.parent != name.parent:
        place.parent.rmdir()
