"""How much room is left on the disk."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Final

__all__ = ["Room"]

_RESERVE_BYTES: Final = 64 * 1024**2
"""For what was begun: decisions, ends of turns and of actions, receipts."""
_LOOK_SECONDS: Final = 1.0


class Room:
    """Whether the disk of a file (None: in memory) has more than the reserve, looked at once a second at most."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._enough = True
        self._next = 0.0

    async def enough(self) -> bool:
        now = time.monotonic()
        if self._file is not None and now >= self._next:
            self._next = now + _LOOK_SECONDS
            self._enough = await asyncio.to_thread(_free, self._file) >= _RESERVE_BYTES
        return self._enough


def _free(file: Path) -> int:
    """Bytes that this user may still write beside it."""
    return shutil.disk_usage(file.resolve().parent).free
