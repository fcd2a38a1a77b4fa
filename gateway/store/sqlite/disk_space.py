"""Free space on the disk of the store."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["DiskSpace"]

log = logging.getLogger("askfirst.store")

_RESERVE_BYTES: Final = 64 * 1024**2
"""Space for work that has begun: decisions, ends of turns and of actions, receipts."""
_LOOK_SECONDS: Final = 1.0

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="askfirst-room")
"""A thread of its own: incoming events do not wait while all threads of the loop are busy, as with name lookups."""


class DiskSpace:
    """The free space on the disk of a file (None: in memory), compared with the reserve at most once a second.

    A change is logged once.
    """

    def __init__(
        self,
        file: Path | None,
        *,
        reserve_bytes: int = _RESERVE_BYTES,
        look_seconds: float = _LOOK_SECONDS,
        thread: ThreadPoolExecutor = _THREAD,
    ) -> None:
        self._file = file
        self._reserve_bytes, self._look_seconds, self._thread = reserve_bytes, look_seconds, thread
        self._enough = True
        self._next = 0.0

    async def enough(self) -> bool:
        """Return True if more than the reserve is free. If no thread can be started, return the last result."""
        if self._file is not None and not self._fresh:
            self._next = time.monotonic() + self._look_seconds
            with suppress(RuntimeError):
                await asyncio.get_running_loop().run_in_executor(self._thread, self._look, self._file)
        return self._enough

    @property
    def seen(self) -> bool:
        """True if a recent result says that enough is free. Then no caller has to wait for a new one."""
        return self._enough and (self._file is None or self._fresh)

    @property
    def _fresh(self) -> bool:
        return time.monotonic() < self._next

    def _look(self, file: Path) -> None:
        """Look in the thread. Its result is kept even if the caller was cancelled."""
        enough = _free(file) >= self._reserve_bytes
        if enough is not self._enough:
            self._enough = enough
            if enough:
                log.warning("there is room again on the disk of %s: goes on", file)
            else:
                log.warning(
                    "the disk of %s has less than %d MiB left: new messages and launches wait; make room",
                    file,
                    self._reserve_bytes // 1024**2,
                )


def _free(file: Path) -> int:
    """Return the bytes that this user may still write to the disk of the file."""
    return shutil.disk_usage(file.resolve().parent).free
