"""The protocol of an embedded store, owned by a single process."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from gateway.store.base import Store


class Embedded(Store, Protocol):
    """A store with `shared` False."""

    async def scrub(self, *, anew: bool = False) -> None:
        """Empty the write-ahead log, because removed bytes remain there.

        `anew`: write the whole file anew before. SQLite overwrites removed data, but a reordered page may keep a copy
        of a row. Rewriting needs as much free disk as the file has, and the store answers no call meanwhile. Raises
        StoreUnavailable while another program reads the file, and when the disk is full.
        """
        ...


def is_embedded(store: Store) -> TypeGuard[Embedded]:
    """Return True for a store of a single process."""
    return not store.shared
