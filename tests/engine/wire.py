"""A process's way to its store, on which a test has things go wrong: refused, lost, cut, held."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isawaitable
from typing import Any

from gateway.store.base import Entry, Key, Store, StoreUnavailable

__all__ = ["Cut", "Wire"]


class Cut(StoreUnavailable):
    """The call did not arrive, or its answer did not come back."""


class Wire:
    """Calls go through to the store, are counted, and may be refused or held. What passes for a Store is this."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.refuse: dict[str, list[BaseException]] = {}
        """Name of a call -> what its next uses raise; they do not arrive."""
        self.on: dict[str, Callable[[], object]] = {}
        """Name of a call -> what is done as soon as it is made; "... answered" -> and when its answer has come,
        which is heard once that is done."""
        self.lost: Counter[str] = Counter()
        """Name of a call -> how many of its next uses arrive without an answer coming back."""
        self.left: int | None = None
        """The process dies with the last of so many calls."""
        self.answer_lost = False
        """That last call arrives, and its answer does not come back."""
        self.survives = False
        """Nobody dies: it is that one call that fails."""
        self.pause_after: int | None = None
        """The process stands still after so many calls, until `go_on` is set."""
        self.paused, self.go_on = asyncio.Event(), asyncio.Event()

    @property
    def is_cut(self) -> bool:
        return self.left == 0

    @property
    def offset_seconds(self) -> float:
        return self._store.offset_seconds

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._store.offset_seconds = seconds

    @property
    def context(self) -> bool:
        return self._store.shared

    def partition(self, conversation: str) -> str:
        return self._store.partition(conversation)

    def watch(self, log: Key, *, after: int = 0) -> AsyncIterator[Entry]:
        self.calls["watch"] += 1
        return self._store.watch(log, after=after)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._store, name)

        async def through(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self.on:
                self.on[name]()
            await self._stand_still()
            if self.refuse.get(name):
                raise self.refuse[name].pop(0)
            if self.left == 0:
                raise Cut
            last = self.left == 1
            if self.left is not None:
                self.left = None if last and self.survives else self.left - 1
            if last and not self.answer_lost:
                raise Cut
            answer = await call(*args, **kwargs)
            if (answered := f"{name} answered") in self.on and isawaitable(held_up := self.on[answered]()):
                await held_up
            if last:
                raise Cut
            if self.lost[name]:
                self.lost[name] -= 1
                raise StoreUnavailable("no answer")
            return answer

        return through

    async def _stand_still(self) -> None:
        if self.pause_after is None:
            return
        self.pause_after -= 1
        if self.pause_after < 0:
            self.pause_after = None
            self.paused.set()
            await self.go_on.wait()
