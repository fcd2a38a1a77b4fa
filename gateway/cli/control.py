"""The operator's commands, whether a server is running or not.

A server that runs on an SQLite file listens on a socket file beside it, for its own user alone. A command asks there;
when nobody listens it opens the store itself, which the operating system's lock allows to one process at a time. A
store on Redis is open to many: there nobody is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
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
from gateway.app import home_of
from gateway.engine.operator import NotDone, Operator
from gateway.pending.seal import Keyring
from gateway.settings import Settings
from gateway.store.base import StoreRefused

__all__ = ["control", "operate", "socket_file", "store_file"]

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
    }
)
LONGEST_PATH = 103
"""Bytes of a socket's path: sockaddr_un holds 108 on Linux (unix(7)) and 104 on macOS, with a zero at the end."""
_SHUTDOWN_SECONDS = 2.0
_ANSWER_WITHIN = aiohttp.ClientTimeout(total=10)


def store_file(url: str) -> Path | None:
    """The file of an embedded store."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def socket_file(store: Path) -> Path:
    """Where the server of this store listens; a link to it where the path would be too long."""
    return store.with_name(f"{store.name}.sock")


@contextlib.asynccontextmanager
async def control(operator: Operator, store: Path | None) -> AsyncIterator[None]:
    """Let operators' commands work on the store that is served; on that of a file, listen for them.

    The caller owns the file, so a socket file that is there is a dead server's. Raises AskfirstError when none can be
    made there.
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


def operate(settings: Settings, operation: str, **arguments: Json) -> Any:
    """Have the running server do it, or do it to the store where none has to be asked. Raises AskfirstError."""
    store = store_file(settings.store)
    if store is None:
        return _alone(settings, operation, arguments)
    if (place := _listening_at(socket_file(store))) is not None:
        with contextlib.suppress(ConnectionError):
            return asyncio.run(_ask(place, operation, arguments))
    if not store.exists():
        raise AskfirstError(f"there is no store {store}: name the bot with --bot, or its store in ASKFIRST_STORE")
    try:
        return _alone(settings, operation, arguments)
    except StoreRefused as error:
        raise AskfirstError(f"no server answers for this store, and it cannot be opened: {error}") from error


def _listening_at(name: Path) -> Path | None:
    """Where the server of this store listens, if it does.

    A link is left behind by a server that was killed, and anybody may make the directory anew that it leads to: only
    one that belongs to whoever made the link, and that nobody else may enter, is that server's.
    """
    if not name.is_symlink():
        return name if name.exists() else None
    place = name.readlink()
    try:
        directory, maker = place.parent.lstat(), name.lstat().st_uid
    except OSError:
        return None
    private = stat.S_ISDIR(directory.st_mode) and stat.S_IMODE(directory.st_mode) & 0o077 == 0
    return place if private and directory.st_uid == maker else None


async def _answer(operator: Operator, request: web.Request) -> web.Response:
    operation = request.match_info["operation"]
    if operation not in OPERATIONS:
        raise web.HTTPNotFound
    try:
        arguments = await request.json()
        if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
            raise TypeError
        doing = getattr(operator, operation)(**arguments)
    except (ValueError, TypeError):
        return web.json_response({"error": f"no JSON object of the texts that {operation} takes"}, status=400)
    try:
        return web.json_response({"result": await doing})
    except AskfirstError as error:
        return web.json_response({"error": str(error)}, status=409)


async def _ask(place: Path, operation: str, arguments: Mapping[str, Json]) -> Any:
    """Raises ConnectionError when no server listens there."""
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(place)), timeout=_ANSWER_WITHIN) as http,
            http.post(f"http://askfirst/{operation}", json=arguments) as response,
        ):
            answer = await response.json() if response.status in (200, 400, 409) else {}
    except aiohttp.ClientConnectorError as error:
        raise ConnectionError(str(error)) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise AskfirstError("the server did not answer: look at its log, what was asked may have been done") from error
    if "result" not in answer:
        raise NotDone(answer.get("error", "the server could not do it: look at its log"))
    return answer["result"]


def _alone(settings: Settings, operation: str, arguments: Mapping[str, Json]) -> Any:
    home, channels = home_of(settings), _channels(settings)

    async def done() -> Any:
        await home.store.open()
        try:
            operator = Operator(home.store, channels, Keyring(home.keys), bot=None)
            return await getattr(operator, operation)(**arguments)
        finally:
            await home.store.close()

    return asyncio.run(done())


def _channels(settings: Settings) -> Mapping[str, Channel]:
    """Every channel that a message could be written for, none of them started: nothing is sent from here."""
    channels: dict[str, Channel] = {
        DirectChannel.name: DirectChannel(),
        WebChatChannel.name: WebChatChannel(keys=(), hosts=()),
    }
    for name, way in settings.channels_either_way().items():
        channels[name] = load(name).from_settings(settings.channel_settings(name), way=way)
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
    with contextlib.suppress(OSError):  # what nobody may remove any more the next start replaces
        for path in (name, place):
            path.unlink(missing_ok=True)
        if place.parent != name.parent:
            place.parent.rmdir()
