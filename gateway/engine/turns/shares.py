"""The shares of a process's turns: of a person, of a place, and of the web chat as a whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import Final

from channels.direct import DirectChannel
from gateway.config.limits import ONE_PLACE, Share
from gateway.engine.concurrency import KeyedLimit

CROWDED_SECONDS: Final = 2.0
"""The least wait of a turn while the place or person has the most running turns allowed by the limits."""
_LOOKS_A_SECOND: Final = 64
"""Turns of a place or person leased again in a second to check for room. Thousands may wait."""


class TurnShares:
    """Counts the running turns of a process by person and by place."""

    def __init__(self, share: Share, channels: Iterable[str]) -> None:
        """`channels`: the channels of this process. The web chat is bounded beside other channels."""
        self._places, self._people = KeyedLimit(share.place), KeyedLimit(share.person)
        half = max(1, (share.all or 1) // 2)
        self._page = KeyedLimit(min(half, share.place or half))
        self._is_alone = set(channels) <= {ONE_PLACE, DirectChannel.name}
        self._next: dict[str, float] = {}

    @contextlib.contextmanager
    def of_place(self, lane: str) -> Iterator[float]:
        """Count a turn of a conversation for the place during the body, and yield 0. Without room, yield the seconds to
        wait, and do not count the turn."""
        place = self._place(lane)
        limit = self._page if place == ONE_PLACE else self._places
        yield from self._count(limit, place)

    @contextlib.contextmanager
    def of_person(self, person: str | None) -> Iterator[float]:
        """Count a turn for the person, like `of_place`."""
        yield from self._count(self._people, person)

    def is_page(self, lane: str) -> bool:
        """Return True for a conversation of a web chat with a shared limit."""
        return self._place(lane) == ONE_PLACE

    def _count(self, limit: KeyedLimit, name: str | None) -> Iterator[float]:
        if name is None:
            yield 0.0
        elif limit.are_taken(name):
            yield self._wait(name)
        else:
            with limit.one(name):
                yield 0.0

    def _wait(self, name: str) -> float:
        """Return the seconds until the next check of a crowded place or person: the more turns wait, the later."""
        now = asyncio.get_running_loop().time()
        if len(self._next) > _LOOKS_A_SECOND:
            self._next = {each: at for each, at in self._next.items() if at > now}
        at = max(now + CROWDED_SECONDS, self._next.get(name, 0.0) + 1 / _LOOKS_A_SECOND)
        self._next[name] = at
        return at - now

    def _place(self, lane: str) -> str | None:
        """Return the web chat, or the place shared by threads; None for other conversations and for a web chat without
        other channels."""
        _, _, address = lane.partition("/")
        if address.startswith(f"{ONE_PLACE}:"):
            return None if self._is_alone else ONE_PLACE
        place, in_thread, _ = address.partition("/")
        return place if in_thread else None
