"""A process that is killed while it brings a file to the newest version, once at each of many points."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from gateway.store.sqlite import schema


def run(pipe: Connection, old: bytes, directory: Path, points: int) -> None:
    """For each point a copy of the old file, and a process of its own that is killed there. Says where that was."""
    steps = _counted(old, directory / "counted.db")
    copies = [(steps * (number + 1) // points, directory / f"{number}.db") for number in range(points)]
    for step, copy in copies:
        copy.write_bytes(old)
        if (pid := os.fork()) == 0:
            _open(copy, kill_at=step)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        pipe.send((str(copy), os.WIFSIGNALED(status)))
    pipe.send(None)


def _counted(old: bytes, copy: Path) -> int:
    """How many steps of SQLite's machine it takes."""
    copy.write_bytes(old)
    return _open(copy, kill_at=None)


def _open(file: Path, *, kill_at: int | None) -> int:
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    real: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect(*args: object, **options: object) -> sqlite3.Connection:
        db = real(*args, **options)
        db.set_progress_handler(step, 1)
        return db

    schema.sqlite3.connect = connect  # type: ignore[attr-defined]
    try:
        schema.connect(file).close()
    finally:
        schema.sqlite3.connect = real  # type: ignore[attr-defined]
    return taken


__all__ = ["run"]
