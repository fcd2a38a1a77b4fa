"""A misspelt name is reported with a likely one; ``init`` writes a working bot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from dotenv import dotenv_values

from channels.catalogue import BUILT_IN
from gateway.cli import main
from gateway.config.settings import VARIABLES
from gateway.config.suggestions import misspelt
from tests.cli.processes import askfirst


@pytest.mark.parametrize(
    ("written", "mend"),
    [
        ("ASKFIRST_ALOW", "did you mean ASKFIRST_ALLOW?"),
        ("TELEGRAM_TOKEN", "did you mean TELEGRAM_BOT_TOKEN?"),
        ("TWILIO_AUTHTOKEN", "did you mean TWILIO_AUTH_TOKEN?"),
        ("ASKFIRST_XYZ", "docs/settings.md lists every setting"),
    ],
)
def test_an_unread_variable_is_named(written: str, mend: str) -> None:
    assert list(misspelt([written])) == [f"{written} is set, and nothing reads it: {mend}"]


def test_known_and_foreign_variables_are_not_misspelt() -> None:
    read = ["ASKFIRST_ALLOW", "ASKFIRST_SECRET_FILE", "SLACK_APP_TOKEN", "OPENAI_ORG_ID", "HOME", "MY_TELEGRAM_ID"]
    assert list(misspelt(read)) == []


async def test_doctor_warns_of_a_misspelt_setting(here: Path) -> None:
    (here / ".env").write_text("TELEGRAM_TOKEN=7:secret-canary\n")
    _, out, err = await askfirst("doctor", "bot.py", cwd=here)
    assert "warn  settings: TELEGRAM_TOKEN is set, and nothing reads it: did you mean TELEGRAM_BOT_TOKEN?" in out
    assert "canary" not in out + err


def test_the_version_is_an_option_too() -> None:
    said = [CliRunner().invoke(main, [asked]).output for asked in ("version", "--version")]
    assert said[0] == said[1] and said[0].startswith("0.")


async def test_send_to_the_account_of_another_bot_is_refused(here: Path) -> None:
    env = {"TELEGRAM_BOT_TOKEN": "7000001:AAFakeTokenOfTests_0123456789abcdefg"}
    code, _, err = await askfirst("send", "telegram:1:1001", "hello", "--bot", "bot.py", cwd=here, env=env)
    assert code == 1
    assert (
        "telegram:1:1001 is of another bot: this one's account there is 7000001, so write telegram:7000001:..." in err
    )


# ── commands ──


@pytest.mark.parametrize(("written", "meant"), [("serv", "serve"), ("previw", "preview"), ("verson", "version")])
def test_a_command_that_is_not_there_names_the_one_that_is(written: str, meant: str) -> None:
    result = CliRunner().invoke(main, [written])
    assert (result.exit_code, "Did you mean" in result.output, f"'{meant}'" in result.output) == (2, True, True)


def test_every_command_is_listed_and_can_be_called() -> None:
    listed = main.list_commands(main.make_context("askfirst", ["version"]))
    assert listed == sorted(listed) and len(listed) == 19
    for name in listed:
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0


@pytest.mark.ledger("CLI-01")
@pytest.mark.parametrize(
    "written",
    [
        *("serve", "chat", "doctor", "webhooks set", "conversations export", "conversations forget"),
        *("pending list", "pending cancel", "dead drop", "replay"),
    ],
)
def test_each_command_of_an_operator_exists(written: str) -> None:
    result = CliRunner().invoke(main, [*written.split(), "--help"])
    assert (result.exit_code, f" {written} [OPTIONS]" in result.output) == (0, True), result.output


# ── the bot that init writes ──


@pytest.mark.parametrize(
    ("template", "tests"),
    [("tasks", 3), ("support", 2), ("ops", 1), ("orders", 2), ("nightly", 3), ("site", 1), ("mcp", 2)],
)
def test_the_generated_test_passes(template: str, tests: int, tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["init", str(tmp_path / "new"), "--template", template])
    assert made.exit_code == 0, made.output
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "bot.py",
        "test_bot.py",
        *(["tickets.py"] if template == "mcp" else []),
        ".env.example",
        ".gitignore",
    }
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path / "new",
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # an author may have pytest alone
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{tests} passed" in run.stdout


def test_env_example_names_all_needed_settings_and_sets_none(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["init", str(tmp_path)])
    text = (tmp_path / ".env.example").read_text(encoding="utf-8")
    assert dotenv_values(tmp_path / ".env.example") == {}
    named = set(re.findall(r"^#([A-Z_]+)=", text, re.MULTILINE))
    assert named <= set(VARIABLES)
    needed = {each.name for entry in BUILT_IN.values() for each in entry.settings if each.needed_for}
    assert needed | {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ASKFIRST_PROVIDER", "ASKFIRST_ALLOW"} <= named


def test_git_ignores_secrets_and_the_data_of_the_bot(tmp_path: Path) -> None:
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


def test_init_overwrites_no_file(tmp_path: Path) -> None:
    (tmp_path / "test_bot.py").write_text("mine")
    refused = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert refused.exit_code == 1
    assert "already has test_bot.py" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["test_bot.py"]
    assert (tmp_path / "test_bot.py").read_text() == "mine"
