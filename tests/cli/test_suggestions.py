"""What is written beside the settings that there are: it is named, with the one that may have been meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.suggestions import misspelt
from tests.cli.conftest import here
from tests.cli.processes import askfirst

__all__ = ["here"]


@pytest.mark.parametrize(
    ("written", "mend"),
    [
        ("ASKFIRST_ALOW", "did you mean ASKFIRST_ALLOW?"),
        ("TELEGRAM_TOKEN", "did you mean TELEGRAM_BOT_TOKEN?"),
        ("TWILIO_AUTHTOKEN", "did you mean TWILIO_AUTH_TOKEN?"),
        ("ASKFIRST_XYZ", "docs/settings.md lists every setting"),
    ],
)
def test_a_variable_that_nothing_reads_is_named(written: str, mend: str) -> None:
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
    assert said[0] == said[1] != ""


async def test_nothing_is_sent_to_another_bots_account(here: Path) -> None:
    env = {"TELEGRAM_BOT_TOKEN": "7000001:AAFakeTokenOfTests_0123456789abcdefg"}
    code, _, err = await askfirst("send", "telegram:1:1001", "hello", "--bot", "bot.py", cwd=here, env=env)
    assert code == 1
    assert (
        "telegram:1:1001 is of another bot: this one's account there is 7000001, so write telegram:7000001:..." in err
    )
