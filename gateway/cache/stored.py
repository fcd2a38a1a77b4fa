"""A cache in the store of the bot, shared by all processes of the bot."""

from __future__ import annotations

from typing import Annotated, Final, Protocol

from pydantic import Field

from channels import Json
from gateway.cache.base import CacheNotReady, CacheStats
from gateway.config.options import checked
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, Record

_PREFIX: Final = "cached/"


class Seals(Protocol):
    """Seals the entries with the key of the gateway, and opens sealed entries."""

    def sealed(self, name: str, value: Json) -> Json:
        """Return the stored form of the record of this name."""
        ...

    def unsealed(self, key: Key, record: Record, conversation: str) -> Json:
        """Return the value of a record of `sealed`, None without a record.

        A record without a valid seal is logged and left out.
        """
        ...


class StoreCache:
    """A Cache in the store of the bot. Instances on one Redis share the entries.

    An entry made or changed without the gateway's key counts as absent.
    """

    @checked
    def __init__(
        self, *, default_ttl_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0, shared: bool = False
    ) -> None:
        """`shared`: True to give one person's entries to another. Raises WrongOption for a wrong value."""
        self.stats = CacheStats()
        self.shared = shared
        self._ttl_seconds = default_ttl_seconds
        self._home: tuple[Store, Seals] | None = None

    def use(self, store: Store, seals: Seals) -> None:
        """Keep the entries in this store. Called by the bot at start."""
        self._home = store, seals

    async def get(self, key: str) -> Json | None:
        store, seals, place = self._place(key)
        value = seals.unsealed(place, (await store.get([place]))[place], "")
        if value is None:
            self.stats.misses += 1
            return None
        self.stats.hits += 1
        return value

    async def set(self, key: str, value: Json, ttl_seconds: float | None = None) -> None:
        store, seals, place = self._place(key)
        put = Put(seals.sealed(place.name, value), self._ttl_seconds if ttl_seconds is None else ttl_seconds)
        await store.commit(Transaction(partition=place.partition, puts={place.name: put}))

    async def delete(self, key: str) -> bool:
        store, _, place = self._place(key)
        found = (await store.get([place]))[place]
        await store.commit(Transaction(partition=place.partition, deletes=[place.name]))
        return found.value is not None

    async def clear(self) -> None:
        store, _, _ = self._place("")
        for place, _record in await store.scan(_PREFIX):
            await store.commit(Transaction(partition=place.partition, deletes=[place.name]))
        self.stats = CacheStats()

    def _place(self, key: str) -> tuple[Store, Seals, Key]:
        if self._home is None:
            raise CacheNotReady(
                "a StoreCache has no store before its bot runs: use an InMemoryCache for an agent without a chat"
            )
        name = f"{_PREFIX}{key}"
        store, seals = self._home
        return store, seals, Key(store.partition(name), name)
