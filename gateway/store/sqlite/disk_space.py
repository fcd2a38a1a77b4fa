"""How much room is left on the disk."""

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
"""For what was begun: decisions, ends of turns and of actions, receipts."""
_LOOK_SECONDS: Final = 1.0

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="askfirst-room")
"""Of its own: what comes in does not wait while the loop's threads all look up names that nobody resolves."""


class DiskSpace:
    """Whether the disk of a file (None: in memory) has more than the reserve, looked at once a second at most.

    The log says once that it has not, and once that it has again.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._enough = True
        self._next = 0.0

    async def enough(self) -> bool:
        """What was seen last, when no thread can be started to look."""
        if self._file is not None and not self._fresh:
            self._next = time.monotonic() + _LOOK_SECONDS
            with suppress(RuntimeError):
                await asyncio.get_running_loop().run_in_executor(_THREAD, self._look, self._file)
        return self._enough

    @property
    def seen(self) -> bool:
        """Whether enough was seen a moment ago: nothing has to be waited for then."""
        return self._enough and (self._file is None or self._fresh)

    @property
    def _fresh(self) -> bool:
        return time.monotonic() < self._next

    def _look(self, file: Path) -> None:
        """In the thread, whose answer counts also when its caller has given up waiting for it."""
        enough = _free(file) >= _RESERVE_BYTES
        if enough is not self._enough:
            self._enough = enough
            if enough:
                log.warning("there is room again on the disk of %s: goes on", file)
            else:
                log.warning(
                    "the disk of %s has less than %d MiB left: new messages and launches wait; make room",
                    file,
                    _RESERVE_BYTES // 1024**2,
                )


def _free(file: Path) -> int:
    """Bytes that this user may still write beside it."""
    return shutil.disk_usage(file.resolve().parent).free
