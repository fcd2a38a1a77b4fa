"""Background work of a process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from gateway.observe import describe_error

__all__ = ["Tasks"]

log = logging.getLogger("askfirst.engine")

_CANCELLED_SECONDS = 3.0
"""How long work that was cancelled may take for what it has to hand back."""


class Tasks:
    """Background work of this process: kept until it ends, its failures logged by their type and place."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def ended(self) -> None:
        """Returns when what runs, and what it starts, has ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def drain(self, grace_seconds: float) -> None:
        """Let it end for so long; then cancel it. What does not let itself be cancelled is left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self.ended()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCELLED_SECONDS):
                while self._running:
                    for task in self._running:
                        task.cancel()
                    await asyncio.wait(self._running)
        for task in self._running:
            log.warning("%s was cancelled and does not end: it is left", task.get_name())
        self._running.clear()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %s", task.get_name(), describe_error(error))
