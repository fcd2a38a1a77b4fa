"""Checks of a server's settings and data, at the start and during use."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from gateway.store.errors import NotPrimary, StoreRefused, StoreUnavailable
from gateway.store.form import FORM, other_form
from gateway.store.redis.client import REPLICA, Client
from gateway.store.redis.keys import PARTITIONS, Keys

log = logging.getLogger("askfirst.store")

_OLDEST: Final = (7, 0)
_KEEPS: Final = "noeviction"


async def check(client: Client, keys: Keys) -> None:
    """Check the server and the form of the data.

    Raises StoreRefused, NotPrimary, and StoreUnavailable when the server does not answer. Warns if a restart would lose
    data.
    """
    judge(await client.command("INFO"))
    for name in _forms(keys):
        await _stamp(client, name)


def _forms(keys: Keys) -> list[str]:
    """Return the keys of the form: of the whole store, and of each partition, for comparison by the scripts."""
    return [keys.format, *(f"{keys.base(partition)}:format" for partition in PARTITIONS)]


async def _stamp(client: Client, name: str) -> None:
    """Store the form if absent. Raises StoreRefused for another stored form."""
    found = await client.command("GET", name)
    if found is None:  # not before: a server whose memory is full accepts no new key, and is opened all the same
        await client.command("SET", name, FORM, "NX")
        found = await client.command("GET", name)
    if not _is_ours(found):
        raise StoreRefused(f"What is stored there {other_form(_text(found))}")


def _is_ours(found: bytes) -> bool:
    return _text(found) == str(FORM)


def _text(found: bytes) -> str:
    return found.decode(errors="replace")


class Watch:
    """Logs a loss of data while this process runs, a new setting for evicting data, and another form of the store.

    Data was lost when an ever growing counter went back, or when a script found a clock older than an acknowledged
    write: the server was restarted without a file or with an older file, was emptied, or was replaced by a lagging
    replica.
    """

    def __init__(self, client: Client, keys: Keys, *, look_seconds: float) -> None:
        self._client, self._keys = client, keys
        self._look_seconds = look_seconds
        self._count = 0
        self._policy = _KEEPS
        self._next = 0.0
        self.refused: str | None = None
        """Why the store is neither read nor written: the form was changed while this process runs."""

    async def look(self) -> bool:
        """Look at most once in `look_seconds`. Return True for a newly found loss of data.

        No error is raised: the next call finds out if the server answers.
        """
        now, lost = time.monotonic(), False
        if now < self._next:
            return False
        self._next = now + self._look_seconds
        with contextlib.suppress(StoreUnavailable):
            before, self._count = self._count, int(await self._client.command("INCR", self._keys.looks))
            behind = await self._client.command("DEL", *(f"{self._keys.base(each)}:behind" for each in PARTITIONS))
            lost = self._count <= before or bool(behind)
            if lost:
                log.error(
                    "Redis has lost what it had stored, all of it or the latest: open questions, messages and replies "
                    "that were acknowledged may be gone. Set appendonly to yes, and see its log for why it began anew."
                )
                for name in _forms(self._keys):
                    await self._client.command("SET", name, FORM, "NX")
            self._compare(await self._client.command("GET", self._keys.format))
            before_policy, self._policy = self._policy, _policy(await self._client.command("INFO", "memory"))
            if self._policy not in (before_policy, _KEEPS):
                log.error(
                    "Redis may throw away what it was given from now on, when its memory is full: maxmemory-policy was "
                    "set to %s. Set it back to %s.",
                    self._policy,
                    _KEEPS,
                )
        return lost

    def _compare(self, found: bytes | None) -> None:
        """Refuse the store while the form is another. A change is logged once."""
        refused = None
        if found is not None and not _is_ours(found):
            refused = f"what is stored there {other_form(_text(found))}"
        if refused is not None and self.refused is None:
            log.error("Redis is not used any more: %s", refused)
        self.refused = refused


def _policy(info: Mapping[str, Any]) -> str:
    """Return the server's policy for a full memory."""
    return str(info.get("maxmemory_policy", _KEEPS))


def judge(info: Mapping[str, Any]) -> None:
    """Check the answer of INFO. Raises StoreRefused and NotPrimary, and warns of settings that may lose data."""
    if info.get("redis_mode") == "sentinel":
        raise StoreRefused(
            "ASKFIRST_STORE names a Sentinel, which holds no data: name the primary itself, or a host that follows it."
        )
    version = str(info["redis_version"])
    if tuple(int(number) for number in version.split(".")[:2]) < _OLDEST:
        raise StoreRefused(f"Redis {version} is too old: 7.0 or later is needed.")
    if info.get("cluster_enabled"):
        raise StoreRefused("This Redis runs as a cluster, which is not served yet: name a single server or primary.")
    if (policy := _policy(info)) != _KEEPS:
        raise StoreRefused(
            f"Redis may throw away what it was given when its memory is full (maxmemory-policy {policy}). "
            f"Set maxmemory-policy to {_KEEPS}."
        )
    if info.get("role") == "slave":
        raise NotPrimary(f"Redis cannot be used now: {REPLICA}")
    if not info.get("aof_enabled"):
        log.warning(
            "Redis keeps no append-only file: what was acknowledged since its last snapshot is lost when it stops. "
            "Set appendonly to yes."
        )
    if info.get("maxmemory") == 0:
        log.warning(
            "Redis has no bound of memory: when the machine has none left, the system kills it, and nothing is refused "
            "before. Set maxmemory to half of what it may use."
        )
