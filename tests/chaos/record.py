"""The record of a run: one file outside of any store, written by every process, kept after each death."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

__all__ = ["Line", "Record"]

Line = dict[str, Any]
"""`t` (seconds of a clock shared by all processes), `pid`, `what`, and more."""


class Record:
    """A line is whole or missing. After the return of `write` the line is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def write(self, what: str, **more: object) -> None:
        line = {"t": time.monotonic(), "pid": os.getpid(), "what": what, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def has(self, what: str, **more: object) -> bool:
        """Return True if any process wrote this line."""
        return json.dumps({"what": what, **more})[1:] in self._path.read_text()

    def lines(self, *whats: str) -> list[Line]:
        """Return the lines of these kinds, or all, in the order of writing."""
        lines: list[Line] = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [line for line in lines if not whats or line["what"] in whats]
