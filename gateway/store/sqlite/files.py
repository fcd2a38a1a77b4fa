"""The files of a database: in place, on a local disk, with free space, and with a small log.

Files removed or replaced under an open database are detected: SQLite would continue with the open file, and later
writes would be lost. SQLite's write-ahead log does not work on network file systems (https://sqlite.org/wal.html), and
grows while another program reads the database without end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger("askfirst.store")


class Files:
    """The database at `path` (None: in memory, without files), the write-ahead log and the lock."""

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
        """Record the identity of the files, all open now."""
        self._opened = {file: _identity(file) for file in self._all}

    def lost(self, *, now: bool = False) -> str | None:
        """Return why the database must no longer be used, or None. The reason is logged once, and is final.

        The files are checked at most once in `look_seconds`, unless `now`.
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
        """Close the connection, if the files are in place.

        SQLite then moves the open log into the open database, and removes the log by its name. If either was replaced,
        the connection stays open until the process ends. A log that SQLite would apply to a restored database is
        renamed.
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
        """Return True also if unknown, as in a temporarily unreadable directory."""
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
    """Return the device and inode of a file. A new file at the same path has others."""
    found = os.stat(file)  # noqa: PTH116
    return found.st_dev, found.st_ino


_MIB: Final = 1024**2
KEPT_BYTES: Final = 16 * _MIB
"""The size of the log after a checkpoint. Without this limit, SQLite keeps the greatest size
(https://sqlite.org/pragma.html#pragma_journal_size_limit), usually 4 MiB, and more after a large commit."""
_MOST_BYTES: Final = 32 * _MIB


class Growth:
    """The write-ahead log of the database at `path` (None: in memory, without a log).

    SQLite cannot move the part of the log newer than the oldest open read into the database. So an endless reader lets
    the log grow until the disk is full. A change is logged once.
    """

    def __init__(self, path: Path | None) -> None:
        self._log = None if path is None else Path(f"{path}-wal")
        self._grows = False

    def look(self) -> None:
        """Compare the size with the limit, and log a change. No error is raised."""
        if self._log is None:
            return
        try:
            size = os.stat(self._log).st_size  # noqa: PTH116
        except OSError:  # opening the file reports it
            return
        if (size > _MOST_BYTES) is self._grows:
            return
        self._grows = not self._grows
        if self._grows:
            log.warning(
                "%s has %d MiB and grows: another program reads %s without end (a sqlite3 shell in a transaction, a "
                "backup that hangs); end that one, or the disk fills up",
                self._log,
                size // _MIB,
                self._log.name.removesuffix("-wal"),
            )
        else:
            log.warning("%s is small again", self._log)


_RESERVE_BYTES: Final = 64 * 1024**2
"""Space for begun work: decisions, ends of turns and of actions, receipts."""
_LOOK_SECONDS: Final = 1.0

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="askfirst-room")
"""A separate thread: incoming events do not wait while all threads of the loop are busy, as with name lookups."""


class DiskSpace:
    """The free space on the disk of a file (None: in memory), compared with the reserve at most once a second.

    A change is logged once.
    """

    def __init__(
        self,
        file: Path | None,
        *,
        reserve_bytes: int | None = None,
        look_seconds: float = _LOOK_SECONDS,
        thread: ThreadPoolExecutor = _THREAD,
    ) -> None:
        self._file = file
        self._reserve_bytes = _RESERVE_BYTES if reserve_bytes is None else reserve_bytes
        self._look_seconds, self._thread = look_seconds, thread
        self._enough = True
        self._next = 0.0

    async def enough(self) -> bool:
        """Return True if at least the reserve is free. If no thread can be started, return the last result."""
        if self._file is not None and not self._fresh:
            self._next = time.monotonic() + self._look_seconds
            with suppress(RuntimeError):
                await asyncio.get_running_loop().run_in_executor(self._thread, self._look, self._file)
        return self._enough

    @property
    def seen(self) -> bool:
        """True if enough is free by a recent result. Then no caller has to wait for a new result."""
        return self._enough and (self._file is None or self._fresh)

    @property
    def _fresh(self) -> bool:
        return time.monotonic() < self._next

    def _look(self, file: Path) -> None:
        """Look in the thread. The result is kept even if the caller was cancelled."""
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
    """Return the bytes still writable by this user on the disk of the file."""
    return shutil.disk_usage(file.resolve().parent).free


_PROC = Path("/proc/self")
_NETWORK: Final = frozenset(
    (
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fhgfs", "gpfs", "ibrix", "k-afs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "snfs", "vboxsf", "vmhgfs"),
        *("ceph-fuse", "curlftpfs", "davfs", "gcsfuse", "glusterfs", "goofys", "juicefs", "rclone", "s3fs", "smbnetfs"),
        *("sshfs", "moosefs", "mfs"),
    )
)
"""Types of file systems with files on another machine, or on the host of a virtual machine."""


def warn_of_network(file: Path) -> None:
    """Log a warning if this file is, or would be made, on a network file system. Without /proc there is no warning.

    Blocking.
    """
    directory = next(path for path in file.absolute().parents if path.exists())
    try:
        here = os.open(directory, os.O_RDONLY)
        try:
            details = (_PROC / "fdinfo" / str(here)).read_text()
        finally:
            os.close(here)
        mounts = (_PROC / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = file_system(details, mounts)
    if kind is not None and kind.removeprefix("fuse.") in _NETWORK:
        log.warning(
            "%s is on a network file system (%s): SQLite's log needs memory that one machine's processes share, and "
            "locks that hold, so what is stored there may be damaged. Name a file on a local disk, or a Redis, in "
            "ASKFIRST_STORE.",
            file,
            kind,
        )


def file_system(details: str, mounts: str) -> str | None:
    """Return the type of the file system of an open file, by ``/proc/self/fdinfo`` and ``/proc/self/mountinfo``.

    None if unknown. The first file has the id of the mount, so hidden mounts and names with escapes do not matter. See
    proc_pid_fdinfo(5) and proc_pid_mountinfo(5).
    """
    found = [line.split()[1] for line in details.splitlines() if line.startswith("mnt_id:")]
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if before.split(" ")[:1] == found:
            return after.split(" ")[0]
    return None
