"""What happened, written down outside of any store, by every process, in one file that outlives them all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

__all__ = ["Line", "Record"]

Line = dict[str, Any]
"""`t` (seconds of a clock that all processes share), `pid`, `what`, and more."""


class Record:
    """Each line is whole or not there, and there from the moment that `write` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def write(self, what: str, **more: object) -> None:
        line = {"t": time.monotonic(), "pid": os.getpid(), "what": what, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def has(self, what: str, **more: object) -> bool:
        """Whether such a line was written by anybody."""
        return json.dumps({"what": what, **more})[1:] in self._path.read_text()

    def lines(self, *whats: str) -> list[Line]:
        """Of these kinds, or all, in the order they were written."""
        lines: list[Line] = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [line for line in lines if not whats or line["what"] in whats]
