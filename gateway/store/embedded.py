"""The protocol of an embedded store. One process owns it, and so can rewrite its stored values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeGuard

from channels import Json
from gateway.store.base import Store

__all__ = ["Embedded", "Rewriting", "Stored", "is_embedded"]


class Stored(NamedTuple):
    """A stored value: the body of an event or a part, or all steps of a checkpoint in order."""

    kind: Literal["event", "part", "steps"]
    conversation: str
    body: Json
    stamp: datetime | None = None
    """The stamp of an event in a mailbox. None for an event of a timer or a dead letter."""
    is_dead: bool = False
    """True for the content of a dead letter."""


Rewriting: TypeAlias = Callable[[Stored], Json]
"""Returns the new body, or as many new steps. It may be called twice for the same value."""


class Embedded(Store, Protocol):
    """A store that is not `shared`."""

    async def rewrite(self, rewriting: Rewriting) -> None:
        """Replace the content of all events, parts, timers, checkpoints and dead letters in one transaction.

        A value that cannot be decoded stays as it is.
        """
        ...

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
