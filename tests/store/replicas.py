"""A server following another, and taking over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from tests.store.redis_server import RedisServer
from tests.store.wire import Wire

__all__ = ["How", "fail_over", "follow", "following", "has_all_of"]

How = Literal["demoted", "killed", "frozen"]
"""The fate of the old primary; connections to a demoted primary stay."""


@asynccontextmanager
async def following(primary: RedisServer, directory: Path) -> AsyncIterator[RedisServer]:
    """A replica with the data of the primary."""
    directory.mkdir()
    replica = RedisServer(directory)
    await replica.start()
    for each in (primary, replica):
        await each.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)  # no other replica may come
    try:
        await follow(replica, primary)
        while (await _replication(replica)).get("master_link_status") != "up":
            await asyncio.sleep(0.01)
        yield replica
    finally:
        await replica.kill()


async def follow(one: RedisServer, other: RedisServer) -> None:
    where = urlsplit(other.url)
    await one.command("REPLICAOF", str(where.hostname), str(where.port))


async def has_all_of(replica: RedisServer, primary: RedisServer) -> None:
    """Return after the replica has the primary's writes until now."""
    written = (await _replication(primary))["master_repl_offset"]
    while (await _replication(replica))["slave_repl_offset"] < written:
        await asyncio.sleep(0.01)


async def fail_over(primary: RedisServer, replica: RedisServer, wire: Wire, how: How) -> None:
    """Make the replica the primary, and lead the wire there."""
    match how:
        case "killed":
            await primary.kill()
        case "frozen":
            primary.freeze()
    await replica.command("REPLICAOF", "NO", "ONE")
    wire.leads_to = replica.url
    if how == "demoted":
        await follow(primary, replica)


async def _replication(server: RedisServer) -> dict[str, Any]:
    return cast("dict[str, Any]", await server.command("INFO", "replication"))
