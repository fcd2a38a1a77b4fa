"""Callbacks for actions: functions of an author that are called with an action that has ended, or is in doubt."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.logs import describe_error
from gateway.tools.pending_action import PendingAction

__all__ = ["ActionCallback", "ActionCallbacks"]

log = logging.getLogger("askfirst.bot")

ActionCallback: TypeAlias = Callable[[PendingAction], Awaitable[None] | None]
_CALLBACK_SECONDS = 60.0


class ActionCallbacks:
    """The callbacks of one kind, called in the order in which they were added. `name` names the kind in the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._callbacks: list[ActionCallback] = []

    def add(self, callback: ActionCallback) -> None:
        """Add a callback, sync or async."""
        self._callbacks.append(callback)

    async def call(self, action: PendingAction) -> None:
        """Call them, sync ones in a thread. Errors are logged, and a callback that hangs is timed out."""
        for callback in self._callbacks:
            try:
                async with asyncio.timeout(_CALLBACK_SECONDS):
                    is_async = inspect.iscoroutinefunction(callback)
                    called = callback(action) if is_async else await asyncio.to_thread(callback, action)
                    if called is not None:
                        await called
            except Exception as error:  # noqa: BLE001 - an author's callback must not undo what is done
                log.error("an %s callback failed: %s", self._name, describe_error(error))
