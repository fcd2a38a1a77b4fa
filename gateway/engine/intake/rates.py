"""Rate limits of incoming events, by person, place and all together, shared by all processes.

Asking the store about every message would cost a round trip each. A process takes its rate in portions: a sixth of a
minute's rate, and the first portion of a minute without asking. So occasional messages cost no round trip, and each
process lets a person exceed the limit by a sixth at most.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from channels import Address, Person
from gateway.limits import Share
from gateway.store.base import Store
from gateway.store.types import Cell

__all__ = ["Rates"]

_MINUTE: Final = 60.0
_PORTIONS: Final = 6
_MOST_KNOWN: Final = 10_000


@dataclass(slots=True)
class _Portion:
    """The events that this process may accept under one rate without asking the store."""

    left: int
    since: float
    refused_until: float = 0.0


class Rates:
    """Rate limit per minute. `now` counts seconds."""

    def __init__(self, store: Store, name: str, share: Share, now: Callable[[], float] = time.monotonic) -> None:
        self._store, self._name, self._share, self._now = store, name, share, now
        self._portions: OrderedDict[str, _Portion] = OrderedDict()

    async def exceeded(self, person: Person, address: Address) -> Literal["person", "place", "all"] | None:
        """Count one event. Return which rate it exceeds, or None."""
        if self._share.person is not None and not await self._take(f"person/{person}", self._share.person):
            return "person"
        if self._share.place is not None and not await self._take(_place(address), self._share.place):
            return "place"
        if self._share.all is not None and not await self._take("all", self._share.all):
            return "all"
        return None

    def give_back(self, person: Person, address: Address) -> None:
        """Take one event out of the count: it was not stored, and counts when the platform delivers it again."""
        for name in (f"person/{person}", _place(address), "all"):
            if (portion := self._portions.get(name)) is not None:
                portion.left += 1

    async def _take(self, name: str, a_minute: int) -> bool:
        now, size = self._now(), max(1, a_minute // _PORTIONS)
        portion = self._portions.pop(name, None) or _Portion(size, now)
        self._portions[name] = portion
        if len(self._portions) > _MOST_KNOWN:
            self._portions.popitem(last=False)
        if now < portion.refused_until:
            return False
        if now - portion.since >= _MINUTE:
            portion.left, portion.since = max(size, portion.left), now
        if not portion.left:
            cell = Cell(name=f"{self._name}/{name}", burst=a_minute, period_seconds=_MINUTE, cost=size)
            if wait := await self._store.acquire([cell]):
                portion.refused_until = now + wait
                return False
            portion.left = size
        portion.left -= 1
        return True


def _place(address: Address) -> str:
    return f"place/{address.channel}:{address.account}:{address.place}"
