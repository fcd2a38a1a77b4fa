"""A proxy of a store on which a test makes calls fail, lose their answers or stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any

from gateway.store.base import Store
from gateway.store.errors import StoreUnavailable
from gateway.store.types import Key, LogEntry


class LostCall(StoreUnavailable):
    """The call did not reach the store, or its answer did not come back."""


class FaultyStore:
    """Fault proxy of a store: it forwards and counts calls, and fails, delays or stops the ones that a test names.

    Give it to the code under test as its store (``cast("Store", FaultyStore(store))``), and read the real store to see
    the state. Each process of a test gets a proxy of its own to the same store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        """Name of a call -> number of its uses."""
        self.errors: dict[str, list[BaseException]] = {}
        """Name of a call -> the errors that its next uses raise. These calls do not reach the store."""
        self.hooks: dict[str, Callable[[], object]] = {}
        """Name of a call -> a function to run before it is forwarded. The name with " answered" behind it (``"commit
        answered"``) -> a function to run after the answer; if it returns an awaitable, the caller waits for it."""
        self.lost_answers: Counter[str] = Counter()
        """Name of a call -> how many of its next uses take effect and raise StoreUnavailable."""
        self.calls_left: int | None = None
        """The process "dies" in the last of this many calls: it and all later ones raise `LostCall`. None: never."""
        self.last_answer_lost = False
        """The last of `calls_left` takes effect, and its answer is lost. Otherwise it does not reach the store."""
        self.recovers = False
        """Only the last of `calls_left` raises `LostCall`. Later calls work."""
        self.pause_after: int | None = None
        """The process stops in the call after this many, until `resume` is set. None: it does not stop."""
        self.paused = asyncio.Event()
        """Set when the process has stopped."""
        self.resume = asyncio.Event()
        """Set by the test to let the stopped process continue."""

    @property
    def is_cut(self) -> bool:
        """True once the process has died of `calls_left`."""
        return self.calls_left == 0

    @property
    def offset_seconds(self) -> float:
        return self._store.offset_seconds

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._store.offset_seconds = seconds

    @property
    def shared(self) -> bool:
        return self._store.shared

    @property
    def clock_ahead_seconds(self) -> float:
        return self._store.clock_ahead_seconds

    def trust_clock(self) -> None:
        self._store.trust_clock()

    def partition(self, conversation: str) -> str:
        return self._store.partition(conversation)

    @property
    def partitions(self) -> Sequence[str]:
        return self._store.partitions

    def watch(self, log: Key, *, after: int = 0) -> AsyncGenerator[LogEntry, None]:
        self.calls["watch"] += 1
        return self._store.watch(log, after=after)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._store, name)

        async def forward(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self.hooks:
                self.hooks[name]()
            await self._pause()
            if self.errors.get(name):
                raise self.errors[name].pop(0)
            if self.calls_left == 0:
                raise LostCall
            last = self.calls_left == 1
            if self.calls_left is not None:
                self.calls_left = None if last and self.recovers else self.calls_left - 1
            if last and not self.last_answer_lost:
                raise LostCall
            answer = await call(*args, **kwargs)
            if (answered := f"{name} answered") in self.hooks and isawaitable(delay := self.hooks[answered]()):
                await delay
            if last:
                raise LostCall
            if self.lost_answers[name]:
                self.lost_answers[name] -= 1
                raise StoreUnavailable("no answer")
            return answer

        return forward

    async def _pause(self) -> None:
        if self.pause_after is None:
            return
        self.pause_after -= 1
        if self.pause_after < 0:
            self.pause_after = None
            self.paused.set()
            await self.resume.wait()
