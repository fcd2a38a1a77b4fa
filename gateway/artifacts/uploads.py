"""Files that come in pieces. Until one is whole, it lies beside the kept files, so that any instance takes a piece."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from channels.cancellable_threads import FILES, in_thread

PART_SUFFIX: Final = ".part"
PART_SECONDS: Final = 86400.0
"""The time after its last piece for which an unfinished file is kept, in seconds."""


class Uploads:
    """The unfinished files in a directory. Each has a name that its sender made, and grows at its end alone."""

    def __init__(self, directory: Path, *, now: Callable[[], datetime]) -> None:
        self._directory, self._now = directory, now

    async def add(self, name: str, piece: bytes, *, at: int) -> int:
        """Add a piece at an offset, and return the number of bytes that are there now.

        A piece that is there already adds nothing, and neither does one that begins beyond the end. Raises OSError,
        also when the directory is not there.
        """
        return await in_thread(partial(self._add, name, piece, at), threads=FILES)

    async def has(self, name: str) -> bool:
        """Return True if a piece of this file is there. Raises OSError."""
        return await in_thread(self._path(name).exists, threads=FILES)

    async def read(self, name: str) -> bytes | None:
        """Return the bytes of an unfinished file, or None without one. Raises OSError."""
        return await in_thread(partial(self._read, name), threads=FILES)

    async def remove(self, name: str) -> None:
        """Remove an unfinished file. Raises OSError."""
        await in_thread(partial(self._path(name).unlink, missing_ok=True), threads=FILES)

    def _path(self, name: str) -> Path:
        return self._directory / f".{hashlib.sha256(name.encode()).hexdigest()}{PART_SUFFIX}"

    def _add(self, name: str, piece: bytes, at: int) -> int:
        path = self._path(name)
        if at and not path.exists():
            return 0
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # the same piece may come twice at once, to two instances
            return self._appended(file, piece, at)

    def _appended(self, file: BinaryIO, piece: bytes, at: int) -> int:
        size = os.fstat(file.fileno()).st_size
        if at <= size:
            file.write(piece[size - at :])
            file.flush()
            moment = self._now().timestamp()
            os.utime(file.fileno(), (moment, moment))
        return os.fstat(file.fileno()).st_size

    def _read(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None
