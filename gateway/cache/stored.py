"""A cache in the store of the bot, which all its processes share."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from channels import Json
from gateway.cache.base import CacheNotReady, CacheStats
from gateway.options import checked
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key

_PREFIX: Final = "cached/"


class StoreCache:
    """A Cache in the store of the bot. Instances on one Redis share its entries."""

    @checked
    def __init__(
        self, *, default_ttl_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0, shared: bool = False
    ) -> None:
        """`shared`: True to give one person's entries to another. Raises WrongOption for a wrong value."""
        self.stats = CacheStats()
        self.shared = shared
        self._ttl_seconds = default_ttl_seconds
        self._store: Store | None = None

    def use(self, store: Store) -> None:
        """Keep the entries in this store. The bot calls it when it starts."""
        self._store = store

    async def get(self, key: str) -> Json | None:
        store, place = self._place(key)
        record = (await store.get([place]))[place]
        if record.value is None:
            self.stats.misses += 1
            return None
        self.stats.hits += 1
        return record.value

    async def set(self, key: str, value: Json, ttl_seconds: float | None = None) -> None:
        store, place = self._place(key)
        put = Put(value, self._ttl_seconds if ttl_seconds is None else ttl_seconds)
        await store.commit(Transaction(partition=place.partition, puts={place.name: put}))

    async def delete(self, key: str) -> bool:
        store, place = self._place(key)
        found = (await store.get([place]))[place]
        await store.commit(Transaction(partition=place.partition, deletes=[place.name]))
        return found.value is not None

    async def clear(self) -> None:
        store, _ = self._place("")
        for place, _record in await store.scan(_PREFIX):
            await store.commit(Transaction(partition=place.partition, deletes=[place.name]))
        self.stats = CacheStats()

    def _place(self, key: str) -> tuple[Store, Key]:
        if self._store is None:
            raise CacheNotReady(
                "a StoreCache has no store before its bot runs: use an InMemoryCache for an agent without a chat"
            )
        name = f"{_PREFIX}{key}"
        return self._store, Key(self._store.partition(name), name)
