"""A directory with the invoices example in it, and what a command in this process leaves behind taken back."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with ``bot.py``; commands may load bots and their ``.env`` from it."""
    shutil.copy(EXAMPLE, tmp_path / "bot.py")
    monkeypatch.chdir(tmp_path)
    path, modules, environ = list(sys.path), set(sys.modules), dict(os.environ)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(environ)
