"""Whether a server can be trusted with what people were promised."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from gateway.store.base import StoreRefused
from gateway.store.redis.client import Client
from gateway.store.redis.keys import Keys

__all__ = ["check", "judge"]

log = logging.getLogger("askfirst.store")

_OLDEST: Final = (7, 0)
_FORMAT: Final = 1
"""Of the keys; grows when a release writes what the one before it cannot read."""


async def check(client: Client, keys: Keys) -> None:
    """Raises StoreRefused, and StoreUnavailable when it does not answer. Warns when a restart would lose something."""
    judge(await client.command("INFO"))
    await client.command("SET", keys.format, _FORMAT, "NX")
    found = int(await client.command("GET", keys.format))
    if found > _FORMAT:
        raise StoreRefused(
            f"What is stored there has format {found}, and this program knows up to {_FORMAT}. "
            "It was written by a newer release: run that one."
        )


def judge(info: Mapping[str, Any]) -> None:
    """What a server says of itself, as INFO gives it. Raises StoreRefused."""
    version = str(info["redis_version"])
    if tuple(int(number) for number in version.split(".")[:2]) < _OLDEST:
        raise StoreRefused(f"Redis {version} is too old: 7.0 or later is needed.")
    if info.get("cluster_enabled"):
        raise StoreRefused("This Redis runs as a cluster, which is not served yet: name a single server or primary.")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreRefused(
            f"Redis may throw away what it was given when its memory is full (maxmemory-policy {policy}). "
            "Set maxmemory-policy to noeviction."
        )
    if not info.get("aof_enabled"):
        log.warning(
            "Redis keeps no append-only file: what was acknowledged since its last snapshot is lost when it stops. "
            "Set appendonly to yes."
        )
