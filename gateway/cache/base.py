"""The protocol of a cache. Its values are JSON: a value of a shared store must never be code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from channels import AskfirstError, Json


class CacheNotReady(AskfirstError):
    """A cache was asked before it had a place for its values. The text says what to do."""


@dataclass(slots=True, kw_only=True)
class CacheStats:
    """The counts of one cache in this process."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    """The entries that were dropped to make room. Expired entries do not count."""

    @property
    def hit_rate(self) -> float:
        """The share of the lookups that were hits, from 0 to 1; 0 before the first lookup."""
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
        """Return the value of a key; None if there is no value, or its time is over."""
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
