"""The protocol of a cache, and the cache in memory. Values are JSON: a value of a shared store must never be code."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import orjson
from pydantic import Field

from channels import AskfirstError, Json
from gateway.config.options import checked


class CacheNotReady(AskfirstError):
    """A cache was used before having a place for values. The text gives the remedy."""


@dataclass(slots=True, kw_only=True)
class CacheStats:
    """The counts of one cache in this process."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    """The entries dropped to make room. Expired entries do not count."""

    @property
    def hit_rate(self) -> float:
        """The share of hits among the lookups, from 0 to 1; 0 before the first lookup."""
        return self.hits / lookups if (lookups := self.hits + self.misses) else 0.0

    def __str__(self) -> str:
        return f"hits {self.hits}, misses {self.misses}, evictions {self.evictions}, hit rate {self.hit_rate:.2%}"


@runtime_checkable
class Cache(Protocol):
    """A protocol for a cache with JSON values. A call that raises or hangs counts as a miss, and is logged once.

    The attribute `shared = True` of a cache gives one person's entries to another.
    """

    stats: CacheStats

    async def get(self, key: str) -> Json | None:
        """Return the value of a key; None if there is none or it has expired."""
        ...

    async def set(self, key: str, value: Json, ttl_seconds: float | None = None) -> None:
        """Keep a value. None: for the cache's default time."""
        ...

    async def delete(self, key: str) -> bool:
        """Delete the value of a key. Return False if there was no value."""
        ...

    async def clear(self) -> None:
        """Delete all values, and begin the counts anew."""
        ...


class InMemoryCache:
    """A Cache in memory. A full cache drops the least recently used entry.

    Agents, event loops and threads may share the cache.
    """

    @checked
    def __init__(
        self,
        *,
        max_size: Annotated[int, Field(ge=1)] = 1000,
        default_ttl_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0,
        shared: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_size` is the number of entries. `shared`: True to give one person's entries to another.

        `clock` returns seconds. Raises WrongOption for a wrong value.
        """
        self.stats = CacheStats()
        self.shared = shared
        self._max_size, self._ttl_seconds, self._clock = max_size, default_ttl_seconds, clock
        self._entries: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    async def get(self, key: str) -> Json | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry[0] <= self._clock():
                del self._entries[key]
                entry = None
            if entry is None:
                self.stats.misses += 1
                return None
            self._entries.move_to_end(key)
            self.stats.hits += 1
        value: Json = orjson.loads(entry[1])
        return value

    async def set(self, key: str, value: Json, ttl_seconds: float | None = None) -> None:
        kept = orjson.dumps(value)  # a copy: a later change of the value changes no entry
        with self._lock:
            self._entries[key] = (self._clock() + (self._ttl_seconds if ttl_seconds is None else ttl_seconds), kept)
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_size:
                self._entries.popitem(last=False)
                self.stats.evictions += 1

    async def delete(self, key: str) -> bool:
        with self._lock:
            return self._entries.pop(key, None) is not None

    async def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.stats = CacheStats()
