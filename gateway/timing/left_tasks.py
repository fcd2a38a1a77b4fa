"""Tasks left running after a timeout: cancelled, but possibly ignoring the cancellation."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_left: Final[set[asyncio.Future[Any]]] = set()
"""The tasks not ended yet. The event loop alone would not keep references."""


def leave(task: asyncio.Future[Any]) -> None:
    """Cancel a task without waiting for the end. Errors of the task are not logged."""
    task.cancel()
    _left.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # taken, so that asyncio does not log it
