"""Locks by name: what `lock=` of a tool holds while it runs.

They hold within one process. That is everywhere, as long as one process owns the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

__all__ = ["held"]

_locks: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()
"""A lock lives as long as somebody holds it or waits for it."""


@asynccontextmanager
async def held(name: str) -> AsyncIterator[None]:
    """Hold the lock of that name; calls of any tool that name it wait for each other."""
    lock = _locks.setdefault((asyncio.get_running_loop(), name), asyncio.Lock())
    async with lock:
        yield
