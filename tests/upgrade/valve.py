"""A way to a store on which single kinds of work can be made to stand still, as where a process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

__all__ = ["Valve"]


class Valve:
    """A process's way to its store, in which single kinds of work can be made to stand still for ever."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.shut: set[str] = set()
        """Kinds of lanes that nobody is given any more; "all": nothing goes through but what accepts events."""
        self.unended: set[str] = set()
        """Conversations whose turns do not end."""
        self.standing: set[str] = set()
        """Those of them whose turn has come to its end."""

    @property
    def offset_seconds(self) -> float:
        return float(self.store.offset_seconds)

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self.store.offset_seconds = seconds

    def partition(self, conversation: str) -> str:
        return str(self.store.partition(conversation))

    def watch(self, *args: Any, **options: Any) -> Any:
        return self.store.watch(*args, **options)

    async def lease(self, worker: str, kinds: Any, *, wait_seconds: float = 0.0, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_seconds
        while True:
            if self.shut & {*kinds, "all"}:
                await _for_ever()
            wait = min(0.05, max(0.0, give_up - loop.time()))
            lease = await self.store.lease(worker, kinds, wait_seconds=wait, **options)
            if lease is not None or loop.time() >= give_up:
                return lease

    async def commit(self, transaction: Any) -> Any:
        lease = transaction.lease
        if transaction.finish is not None and lease.kind == "turn" and lease.lane in self.unended:
            self.standing.add(lease.lane)
            await _for_ever()
        if "all" in self.shut:
            await _for_ever()
        if transaction.chain is not None and "out" in self.shut:
            transaction = replace(transaction, chain=None)
        return await self.store.commit(transaction)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self.store, name)

        async def through(*args: Any, **options: Any) -> Any:
            if "all" in self.shut and name in ("pending_decisions", "run_timers", "renew", "give_back"):
                await _for_ever()
            return await call(*args, **options)

        return through


async def _for_ever() -> None:
    await asyncio.Event().wait()
