"""The names of logs, found by their keys: no append pays for an index of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

from gateway.store.redis import scripts
from gateway.store.redis.client import Value
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import to_bytes
from gateway.store.types import Key

_KEYS: Final = 1000
"""The most keys, of any kind, that the server looks at in one call."""


async def find(server: Server, prefix: str, before: int | None) -> list[Key]:
    """Return the logs whose name begins with `prefix` and whose first line has a stamp before this one."""
    found: set[Key] = set()
    async for page in _pages(server, prefix):
        found |= page if before is None else await _begun(server, page, before)
    return list(found)


async def _pages(server: Server, prefix: str) -> AsyncIterator[set[Key]]:
    """Yield all logs with this prefix, page by page; a log may come twice."""
    pattern, cursor = server.keys.logs(prefix), 0
    while True:
        cursor, names = await server.scan_keys(cursor, pattern, _KEYS, "list")
        if page := {key for name in names if (key := server.keys.log_of(name)) is not None}:
            yield page
        if not cursor:
            return


async def _begun(server: Server, logs: set[Key], before: int) -> set[Key]:
    """Return the ones of these logs whose first line has a stamp before this one."""
    of: defaultdict[str, list[Key]] = defaultdict(list)
    for log in logs:
        of[log.partition].append(log)
    places: list[tuple[str, list[Value]]] = [
        (server.keys.base(partition), [len(keys), *(to_bytes(key.name) for key in keys)])
        for partition, keys in of.items()
    ]
    stamps = await server.run_at(scripts.STAMPS, places)
    return {
        key
        for keys, shown in zip(of.values(), stamps, strict=True)
        for key, stamp in zip(keys, shown, strict=True)
        if 0 <= stamp < before
    }
