"""Client of the control socket: runs operators' commands, with or without a running server.

A server on an SQLite file listens on a socket file beside the database, accessible to the server's user alone. Commands
are sent to this socket. If no server listens, the command opens the store directly; the operating system's lock allows
this to a single process at a time. A store on Redis accepts several processes, so commands open the store directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from channels import AskfirstError, Channel, Json
from channels.catalogue import load
from channels.direct import DirectChannel
from channels.webchat import WebChatChannel
from gateway.artifacts import ArtifactStore
from gateway.assembly import home_of, utc_now
from gateway.config.settings import Settings
from gateway.operations.base import NotDone
from gateway.operations.control_server import socket_file, store_file
from gateway.operations.operator import Operator
from gateway.pending.seal import Keyring
from gateway.store.errors import StoreRefused

_READS = frozenset(
    {"pending", "dead", "waiting", "people", "usage", "conversations", "history", "search", "export", "old_seals"}
)
_ANSWER_SECONDS = 10.0
_LONG_SECONDS = 3600.0
"""Forgetting rewrites the whole file, and a search, an export or a check of all seals reads much of the file: some
seconds a gigabyte."""
_LONG = frozenset({"search", "export", "forget", "old_seals", "reseal"})


def operate(settings: Settings, operation: str, **arguments: Json) -> Any:
    """Run an operation in the running server, or directly on the store if no server has to be asked. Raises
    AskfirstError."""
    store = store_file(settings.store)
    if store is None:
        return _alone(settings, operation, arguments)
    if (place := _listening_at(socket_file(store))) is not None:
        with contextlib.suppress(ConnectionError):
            return asyncio.run(_ask(place, operation, arguments))
    if not store.exists():
        if operation not in _READS:
            raise AskfirstError(f"there is no store {store}: start the bot first, or name its store in ASKFIRST_STORE")
        settings = settings.model_copy(update={"store": "sqlite:///:memory:"})  # an empty store
    try:
        return _alone(settings, operation, arguments)
    except StoreRefused as error:
        raise AskfirstError(f"no server answers for this store, and it cannot be opened: {error}") from error


def _listening_at(name: Path) -> Path | None:
    """Return the socket of this store's server, or None.

    A killed server leaves a link behind, and any user could recreate the directory behind the link. The directory is
    therefore accepted only if it belongs to the link's owner and no other user may enter.
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


async def _ask(place: Path, operation: str, arguments: Mapping[str, Json]) -> Any:
    """Send an operation to the server. Raises ConnectionError when no server listens there."""
    timeout = aiohttp.ClientTimeout(total=_LONG_SECONDS if operation in _LONG else _ANSWER_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(place)), timeout=timeout) as http,
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
            files = ArtifactStore(home.artifacts, home.keys, public_url=None, now=utc_now)
            operator = Operator(home.store, channels, Keyring(home.keys), bot=None, artifacts=files)
            return await operator.run(operation, arguments)
        finally:
            await home.store.close()

    return asyncio.run(done())


def _channels(settings: Settings) -> Mapping[str, Channel]:
    """Return every writable channel, not started: this process sends no messages."""
    channels: dict[str, Channel] = {
        DirectChannel.name: DirectChannel(),
        WebChatChannel.name: WebChatChannel(keys=(), hosts=()),
    }
    for name, way in settings.channels_on().items():
        channels[name] = load(name).from_settings(settings.channel_settings(name), way=way)
    return channels
