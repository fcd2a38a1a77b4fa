"""Tasks that took too long: they are cancelled and left, because they may ignore it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_left: Final[set[asyncio.Future[Any]]] = set()
"""The tasks that have not ended yet. The event loop alone would not keep them."""


def leave(task: asyncio.Future[Any]) -> None:
    """Cancel a task without waiting for its end. Its error is not logged."""
    task.cancel()
    _left.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # taken, so that asyncio does not log it
