"""Finds or fetches a working Chromium: on the PATH, by Playwright into Playwright's cache, by apt-get.

Only root runs apt-get, as in a container, after a line on stderr. ``python -m scripts.chromium`` prints the path.
Without a working Chromium the command to run is printed, and the exit status is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["NoChromium", "find"]

PACKAGES = ("chromium-headless-shell", "chromium")
"""The packages of Debian, the best first: the shell draws no window, and a page takes a third of the CPU."""
NAMES = (*PACKAGES, "chromium-browser", "google-chrome")


class NoChromium(Exception):
    """No working Chromium was found, and none could be installed."""


def find() -> Path:
    """Return the path of a working Chromium. Raises NoChromium."""
    for source in (_on_path, _of_playwright, _fetched_by_playwright, _installed_by_apt):
        for path in source():
            if _starts(path):
                return path
    raise NoChromium(
        "The tests need Chromium, and neither one on the PATH nor the one that Playwright fetches starts. Run: "
        f"{sys.executable} -m playwright install --with-deps chromium (it asks for sudo)"
    )


def _on_path() -> Iterator[Path]:
    yield from (Path(found) for name in NAMES if (found := shutil.which(name)))


def _of_playwright() -> Iterator[Path]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield Path(playwright.chromium.executable_path)


def _fetched_by_playwright() -> Iterator[Path]:
    if _succeeds(sys.executable, "-m", "playwright", "install", "chromium", seconds=600):
        yield from _of_playwright()


def _installed_by_apt() -> Iterator[Path]:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(
            "No Chromium starts, and this is root: installing it by apt-get install chromium-headless-shell",
            file=sys.stderr,
        )
        _succeeds("apt-get", "update", seconds=300)
        if any(_succeeds("apt-get", "install", "--yes", package, seconds=900) for package in PACKAGES):
            yield from _on_path()


def _starts(path: Path) -> bool:
    """Return True if the executable starts. Ubuntu's chromium-browser only points to a snap, and a downloaded Chromium
    may lack the system's libraries."""
    return path.exists() and _succeeds(str(path), "--version", seconds=60)


def _succeeds(*command: str, seconds: float) -> bool:
    try:
        run = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0


if __name__ == "__main__":
    try:
        print(find())
    except NoChromium as missing:
        sys.exit(str(missing))
