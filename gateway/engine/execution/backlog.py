"""Backlog: confirmed actions that wait because their tool is at its limit here. Each end makes the next one ready."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gateway.engine.concurrency import KeyedLimit
from gateway.engine.context import EngineContext
from gateway.store.transaction import Transaction
from gateway.store.types import Lease

__all__ = ["ActionBacklog"]


class ActionBacklog:
    """The actions that this process has deferred, by tool, oldest first.

    The store has each with a retry time, so that it also runs if this process ends.
    """

    def __init__(self, context: EngineContext, running: KeyedLimit) -> None:
        self._context, self._running = context, running
        self._waiting: dict[str, dict[str, str]] = {}
        """Tool -> action id -> its partition."""

    def add(self, lease: Lease, kind: str) -> None:
        """Add the action of this lease, which was given back. It is made ready when its tool has a free place."""
        self._waiting.setdefault(kind, {})[lease.lane] = lease.partition
        if not self._running.are_taken(kind):
            self._next(kind)

    @contextlib.contextmanager
    def one(self, kind: str) -> Iterator[None]:
        """Count one running action of this tool while the block runs. Its end makes the next one ready."""
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
