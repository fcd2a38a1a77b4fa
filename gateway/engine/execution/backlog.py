"""Confirmed actions that wait because as many of their tool run here as may. Each that ends makes the next ready."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gateway.engine.concurrency import KeyedLimit
from gateway.engine.context import EngineContext
from gateway.store.base import Lease, Transaction

__all__ = ["ActionBacklog"]


class ActionBacklog:
    """The actions that this process has put off, by tool, in the order they came.

    Each is in the store as put off for a while, so that it runs even if this process does not come back to it.
    """

    def __init__(self, context: EngineContext, running: KeyedLimit) -> None:
        self._context, self._running = context, running
        self._waiting: dict[str, dict[str, str]] = {}
        """Tool -> action id -> its partition."""

    def add(self, lease: Lease, kind: str) -> None:
        """Have the action of this lease, which was given back, made ready as soon as there is room for it."""
        self._waiting.setdefault(kind, {})[lease.lane] = lease.partition
        if not self._running.are_taken(kind):
            self._next(kind)

    @contextlib.contextmanager
    def one(self, kind: str) -> Iterator[None]:
        """Run one action of this tool; when it ends it is the turn of the next."""
        try:
            with self._running.one(kind):
                yield
        finally:
            self._next(kind)

    def _next(self, kind: str) -> None:
        waiting = self._waiting.get(kind)
        if not waiting:
            return
        action_id = next(iter(waiting))
        partition = waiting.pop(action_id)
        if not waiting:
            del self._waiting[kind]
        ready = Transaction(partition=partition, actions=[action_id])
        self._context.tasks.start(self._context.commit(ready), "wake")
