"""What only a store of one process can do: change what waits in it, since nobody else is reading that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeGuard

from channels import Json
from gateway.store.base import Store

__all__ = ["Embedded", "Rewriting", "Stored", "is_embedded"]


class Stored(NamedTuple):
    """What waits: the body of an event or a part, or all steps of a checkpoint in order."""

    kind: Literal["event", "part", "steps"]
    conversation: str
    body: Json
    stamp: datetime | None = None
    """Of an event in a mailbox; one that a timer or a dead letter holds has none."""
    is_dead: bool = False
    """A dead letter holds it."""


Rewriting: TypeAlias = Callable[[Stored], Json]
"""Returns what takes the place of a body, of steps as many. It may be asked twice for the same."""


class Embedded(Store, Protocol):
    """A store that is not `shared`."""

    async def rewrite(self, rewriting: Rewriting) -> None:
        """Change all that waits, in one step: events, parts, timers, checkpoints and dead letters. What cannot be read
        stays as it is."""
        ...


def is_embedded(store: Store) -> TypeGuard[Embedded]:
    """Return True for a store of one process."""
    return not store.shared
