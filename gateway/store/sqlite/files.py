"""Detection of files of an open database that were removed or replaced.

SQLite would continue with the file that it has open, and later writes would be lost with it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Files"]

log = logging.getLogger("askfirst.store")


class Files:
    """The database at `path` (None: in memory, without files), its write-ahead log and its lock."""

    def __init__(self, path: Path | None, *, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._path = path or Path()
        self._log = Path(f"{path}-wal")
        self._lock = Path(f"{path}.lock")
        self._all = () if path is None else (path, self._log, self._lock)
        self._opened: dict[Path, tuple[int, int]] = {}
        self._next = 0.0
        self._lost: str | None = None

    def remember(self) -> None:
        """Note the identity of the files, which are all open now."""
        self._opened = {file: _identity(file) for file in self._all}

    def lost(self, *, now: bool = False) -> str | None:
        """Return why the database must not be used any more, or None. It is logged once, and does not change again.

        It looks at most once in `look_seconds`, unless `now`.
        """
        at = time.monotonic()
        if self._lost is None and (now or at >= self._next):
            self._next = at + self._look_seconds
            gone = next((file for file in self._opened if not self._in_place(file)), None)
            if gone is not None:
                self._lost = self._text(gone)
                log.error("%s", self._lost)
        return self._lost

    def close(self, db: sqlite3.Connection) -> None:
        """Close the connection, if its files are in place.

        SQLite then moves the log that it has open into the database that it has open, and removes the log by its name.
        If one of them was replaced, the connection stays open until the process ends. A log that SQLite would apply to
        a restored database is renamed.
        """
        if self._in_place(self._path) and self._in_place(self._log):
            db.close()
            return
        import ctypes  # rarely needed, and takes a megabyte

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))  # an object of a module would be closed at exit, too
        if self._path.exists() and self._in_place(self._log) and self._in_place(self._lock):
            aside = Path(f"{self._log}.old")
            with suppress(OSError):
                self._log.replace(aside)
                log.error("%s is of the file before this %s: renamed to %s", self._log, self._path.name, aside.name)

    def _in_place(self, file: Path) -> bool:
        """Return True also if that is unknown, as in a directory that cannot be read for a while."""
        try:
            return file not in self._opened or _identity(file) == self._opened[file]
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def _text(self, gone: Path) -> str:
        what = f"{gone} was removed or replaced while it was open: stop, "
        if gone == self._lock:
            return what + f"see that no other process has opened {self._path}, start again"
        return what + "put it back or restore it (docs/deploy.md), start again"


def _identity(file: Path) -> tuple[int, int]:
    """Return the device and inode of a file. A new file at its path has others."""
    found = os.stat(file)  # noqa: PTH116
    return found.st_dev, found.st_ino
