"""The bot that `init` writes works, and nothing of anybody's is overwritten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from dotenv import dotenv_values

from channels.catalogue import BUILT_IN
from gateway.cli import main
from gateway.settings import VARIABLES


def test_the_generated_test_passes(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["init", str(tmp_path / "new")])
    assert made.exit_code == 0, made.output
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "bot.py",
        "test_bot.py",
        ".env.example",
        ".gitignore",
    }
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path / "new",
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # an author may have nothing but pytest itself
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in run.stdout


def test_env_example_names_all_needed_settings_and_sets_none(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["init", str(tmp_path)])
    text = (tmp_path / ".env.example").read_text(encoding="utf-8")
    assert dotenv_values(tmp_path / ".env.example") == {}
    named = set(re.findall(r"^#([A-Z_]+)=", text, re.MULTILINE))
    assert named <= set(VARIABLES)
    needed = {each.name for entry in BUILT_IN.values() for each in entry.settings if each.needed_for}
    assert needed | {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ASKFIRST_PROVIDER", "ASKFIRST_ALLOW"} <= named


def test_git_leaves_out_secrets_and_what_the_bot_keeps(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["init", str(tmp_path)])
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    kept_out = [".env", ".askfirst/askfirst.db"]
    ignored = subprocess.run(
        ["git", "check-ignore", *kept_out, "bot.py", ".env.example"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ignored.stdout.split() == kept_out


def test_the_bot_shows_tools_that_ask(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["init", str(tmp_path)])
    listed = CliRunner().invoke(main, ["tools", str(tmp_path / "bot.py")])
    assert [line.split()[:2] for line in listed.output.splitlines()] == [
        ["list_tasks", "runs"],
        ["add_task", "asks"],
        ["delete_task", "asks"],
    ]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_bot.py").write_text("mine")
    refused = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert refused.exit_code == 1
    assert "already has test_bot.py" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["test_bot.py"]
    assert (tmp_path / "test_bot.py").read_text() == "mine"


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(main, ["version"]).output.startswith("0.")
