"""The protocol of an embedded store, which one process owns."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from gateway.store.base import Store


class Embedded(Store, Protocol):
    """A store that is not `shared`."""

    async def scrub(self, *, anew: bool = False) -> None:
        """Empty the write-ahead log, which has bytes of what was removed.

        `anew`: write the whole file anew before that. SQLite overwrites what is removed, but a page that is reordered
        may keep a copy of a row. It needs as much free disk as the file has, and the store answers no call meanwhile.
        Raises StoreUnavailable while another program reads the file, and when the disk is full.
        """
        ...


def is_embedded(store: Store) -> TypeGuard[Embedded]:
    """Return True for a store of one process."""
    return not store.shared
