"""A store whose calls are timed, for the metrics of its operators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

from gateway.store.base import Store

__all__ = ["OPERATIONS", "Called", "timed"]

OPERATIONS: Final = (
    *("accept", "acquire", "commit", "get", "has_headroom", "now", "outbox", "pending_decisions"),
    *("ping", "read", "renew", "run_timers", "scan", "stats"),
)
"""The timed calls. A lease is none of them, because it waits for work; nor are the calls of an operator's commands."""

Called: TypeAlias = Callable[[str, float, BaseException | None], None]
"""Called after each call with its name, its seconds, and the error that it raised."""


def timed(store: Store, called: Called) -> Store:
    """Return the same store, with `called` called after each of `OPERATIONS`. A cancelled call is not counted."""
    return cast("Store", _TimedStore(store, called))


class _TimedStore:
    def __init__(self, store: Store, called: Called) -> None:
        self._store = store
        for name in OPERATIONS:
            setattr(self, name, _timed(name, getattr(store, name), called))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def offset_seconds(self) -> float:
        return self._store.offset_seconds

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._store.offset_seconds = seconds


def _timed(name: str, call: Callable[..., Awaitable[Any]], called: Called) -> Callable[..., Awaitable[Any]]:
    clock = time.perf_counter

    async def run(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        try:
            result = await call(*args, **kwargs)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            called(name, clock() - began, error)
            raise
        called(name, clock() - began, None)
        return result

    return run
