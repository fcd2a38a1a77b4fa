"""The shared limits of `ASKFIRST_LIMITS` reached lately, for `/readyz` and `askfirst waiting`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from channels import Json
from gateway.store.base import Store
from gateway.store.errors import StoreError
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys

TOLD_SECONDS: Final = 3600.0
"""The time for which a reached limit is reported."""
_NOTED_SECONDS: Final = 60.0

Start: TypeAlias = Callable[[Coroutine[Any, Any, None], str], None]
"""Start a background task; the text names it in the log."""


class ReachedLimits:
    """Notes reached limits in the store, so that each process and each command reports the limits of all processes."""

    def __init__(self, store: Store, start: Start, now: Callable[[], float] = time.monotonic) -> None:
        self._store, self._start, self._now = store, start, now
        self._noted: dict[str, float] = {}

    def note(self, name: str, limit: str) -> None:
        """Note a limit reached by all together, or by a place; at most once a minute.

        `limit`: the setting, like ``turns=8/32/64``.
        """
        now = self._now()
        if now - self._noted.get(name, -_NOTED_SECONDS) >= _NOTED_SECONDS:
            self._noted[name] = now
            self._start(self._write(name, limit), "note of a reached limit")

    async def _write(self, name: str, limit: str) -> None:
        key = _key(self._store)
        with contextlib.suppress(StoreError):  # the next one is noted again
            found = await self._store.get([key])
            kept = _fresh(found[key].value, found.now)
            kept[name] = {"at": found.now.isoformat(), "limit": limit}
            puts = {key.name: Put({each: {**note} for each, note in kept.items()}, TOLD_SECONDS)}
            expected = {key.name: found[key].version}
            await self._store.commit(Transaction(partition=key.partition, expect=expected, puts=puts))


async def reached_limits(store: Store) -> Mapping[str, Mapping[str, str]]:
    """Return the limits reached within the last hour: name -> `at`, and the setting as `limit`."""
    key = _key(store)
    found = await store.get([key])
    return _fresh(found[key].value, found.now)


def _fresh(stored: Json, now: datetime) -> dict[str, Mapping[str, str]]:
    """Return the notes of a stored record, without outdated notes."""
    fresh: dict[str, Mapping[str, str]] = {}
    for name, note in stored.items() if isinstance(stored, dict) else ():
        match note:
            case {"at": str(at), "limit": str(limit)}:
                with contextlib.suppress(ValueError, TypeError):
                    if now - datetime.fromisoformat(at) < timedelta(seconds=TOLD_SECONDS):
                        fresh[name] = {"at": at, "limit": limit}
    return fresh


def _key(store: Store) -> Key:
    return Key(store.partition(keys.REACHED), keys.REACHED)
