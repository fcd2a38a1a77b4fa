"""The bot that `init` writes works, and nothing of anybody's is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from gateway.cli import main


def test_the_generated_test_passes(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["init", str(tmp_path / "new")])
    assert made.exit_code == 0, made.output
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"bot.py", "test_bot.py", ".env.example"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path / "new",
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # an author may have nothing but pytest itself
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_bot.py").write_text("mine")
    refused = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert refused.exit_code == 1
    assert "already has test_bot.py" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["test_bot.py"]
    assert (tmp_path / "test_bot.py").read_text() == "mine"


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(main, ["version"]).output.startswith("0.")
