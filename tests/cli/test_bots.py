"""What is written for a bot, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main


def preview(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["preview", *arguments])


@pytest.mark.parametrize("bot", ["bot.py", "bot.py:bot", "bot:bot", "bot"])
def test_a_bot_is_a_file_or_a_module(here: Path, bot: str) -> None:
    result = preview(bot, "delete_invoice", '{"invoice_id": "INV-42"}')
    assert result.exit_code == 0, result.output
    assert "Delete invoice INV-42 for good?" in result.output


@pytest.mark.parametrize(
    ("bot", "code", "said"),
    [
        ("nothing.py", 2, "there is no file nothing.py\n"),
        ("nothing:bot", 1, "Error: there is no module nothing\n"),
        ("not a bot", 2, "'not a bot' is neither a Python file nor module:name"),
        ("bot.py:robot", 1, "bot.py:robot has no 'robot': assign robot = ChannelAgent(Agent(...))"),
        ("bot.py:find", 1, "'find' in bot.py:find is of type function, not a ChannelAgent or an Agent"),
    ],
)
def test_missing_bot_is_refused_without_a_traceback(here: Path, bot: str, code: int, said: str) -> None:
    result = preview(bot, "delete_invoice")
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_error_in_the_file_shows_only_the_authors_frames(here: Path) -> None:
    (here / "helper.py").write_text("def help():\n    return 1 / 0\n")
    (here / "broken.py").write_text("from helper import help\n\nhelp()\n")
    result = preview("broken.py", "anything")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "Error: broken.py cannot be loaded:"
    assert [line.strip() for line in lines if line.strip().startswith("File")] == [
        f'File "{here}/broken.py", line 3, in <module>',
        f'File "{here}/helper.py", line 2, in help',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_invalid_tool_is_reported_at_the_authors_line(here: Path) -> None:
    (here / "broken.py").write_text("from gateway import tool\n\n@tool\ndef act(x):\n    'Act.'\n")
    result = preview("broken.py", "act")
    assert result.exit_code == 1
    assert 'broken.py", line 3' in result.stderr
    assert "gateway/tools" not in result.stderr
    assert "x: has no annotation" in result.stderr


def test_env_file_beside_the_bot_is_read_before_it_is_loaded(here: Path) -> None:
    (here / "named.py").write_text(
        "import os\nfrom gateway import Agent, ChannelAgent, tool\n"
        "@tool(confirm='Greet ' + os.environ['SHOP'] + '?')\ndef greet() -> str:\n    'Greet.'\n    return ''\n"
        "bot = ChannelAgent(Agent([greet]))\n"
    )
    (here / ".env").write_text("SHOP=Aurora\n")
    assert "Greet Aurora?" in preview("named.py", "greet").output
