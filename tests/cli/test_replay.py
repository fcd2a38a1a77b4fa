"""``askfirst replay``: recorded webhook bodies through the real command."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.channels.twilio.forms import FORMS
from tests.cli.processes import askfirst

CHANNELS = Path(__file__).parents[1] / "channels"
BOT = """
from pathlib import Path

from gateway import Agent, ChannelAgent, tool

@tool(confirm="Delete invoice {invoice_id}?")
async def delete_invoice(invoice_id: str) -> str:
    "Delete an invoice."
    Path("deleted").touch()
    return "gone"

bot = ChannelAgent(Agent([delete_invoice], provider="demo"), language="en")

@bot.on_outcome
async def note(action) -> None:
    Path("told").touch()
"""
TELEGRAM = json.loads((CHANNELS / "telegram/fixtures/private_text.json").read_text())["update"]
PRESS = json.loads((CHANNELS / "telegram/fixtures/press.json").read_text())["update"]
PRESS["callback_query"]["from"]["language_code"] = TELEGRAM["message"]["from"]["language_code"] = "en"
SLACK = json.loads((CHANNELS / "slack/fixtures/message_im.json").read_text())["payload"]
SLACK["event"]["text"] = "delete INV-42"
SLACK_PRESS = json.loads((CHANNELS / "slack/fixtures/press_in_im.json").read_text())["payload"]
RUNS = '    would run: delete_invoice {"invoice_id": "INV-42"}'


def later(update: Mapping[str, Any], number: int, text: str, seconds: int) -> Any:
    then = copy.deepcopy(dict(update))
    then["update_id"] += number
    then["message"] |= {"message_id": 77 + number, "text": text, "date": then["message"]["date"] + seconds}
    return then


def write(file: Path, records: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture
def bot(here: Path) -> Path:
    (here / "bot.py").write_text(BOT)
    return here


@pytest.mark.ledger("TEST-06")
@pytest.mark.parametrize(
    ("records", "asks", "answers"),
    [
        (
            [{"channel": "telegram", "body": TELEGRAM}, {"channel": "telegram", "body": json.dumps(PRESS)}],
            "report.jsonl:1  telegram  Ana García: delete INV-42 ✅",
            "report.jsonl:2  telegram  Ana García presses [ Confirm ]",
        ),
        (
            [
                {"channel": "slack", "body": SLACK},
                {
                    "channel": "slack",
                    "headers": {"Content-Type": "application/x-www-form-urlencoded"},
                    "body": urlencode({"payload": json.dumps(SLACK_PRESS)}),
                },
            ],
            "report.jsonl:1  slack  U061F7AUR: delete INV-42",
            "report.jsonl:2  slack  ana presses [ Confirm ]",
        ),
        (
            [
                {"channel": "twilio", "body": urlencode(FORMS["sms text"])},
                {"channel": "twilio", "body": urlencode({**FORMS["sms code"], "MessageSid": f"SM{'0' * 31}1"})},
            ],
            "report.jsonl:1  sms  +15557654321: delete INV-42, please",
            "report.jsonl:2  sms  +15557654321: ok k7p2",
        ),
    ],
    ids=["telegram", "slack", "twilio"],
)
async def test_a_recorded_confirmation_is_asked_answered_and_not_run(
    bot: Path, records: Sequence[Mapping[str, Any]], asks: str, answers: str
) -> None:
    write(bot / "report.jsonl", records)
    code, out, err = await askfirst("replay", "bot.py", "report.jsonl", cwd=bot)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == asks
    assert "    Delete invoice “INV-42”?" in lines
    assert lines.index(asks) < lines.index(answers) < lines.index(RUNS)
    assert "no signature is checked: this replay is offline" in err and "Nothing is sent" in err
    assert sorted(each.name for each in bot.iterdir() if each.name != "__pycache__") == ["bot.py", "report.jsonl"]


@pytest.mark.ledger("TEST-06")
async def test_the_clock_moves_on_as_in_the_recording(bot: Path) -> None:
    late = later(TELEGRAM, 1, "yes", 16 * 60)
    write(bot / "report.jsonl", [{"channel": "telegram", "body": body} for body in (TELEGRAM, late)])
    _, out, _ = await askfirst("replay", "bot.py", "report.jsonl", cwd=bot)
    assert "    16 min later" in out.splitlines()
    assert "This has expired and nothing was done." in out
    assert "would run" not in out


async def test_replayed_twin_of_a_yes_runs_no_action(bot: Path) -> None:
    yes = later(TELEGRAM, 1, "yes", 5)
    twin = {"channel": "telegram", "body": yes}
    write(bot / "report.jsonl", [{"channel": "telegram", "body": TELEGRAM}, twin, twin])
    _, out, _ = await askfirst("replay", "bot.py", "report.jsonl", cwd=bot)
    assert out.count("would run") == 1
    assert out.endswith("report.jsonl:3  telegram  Ana García: yes\n    no answer\n")


async def test_a_reply_is_to_the_newest_question(bot: Path) -> None:
    reply = later(TELEGRAM, 1, "yes", 300)
    reply["message"]["reply_to_message"] = PRESS["callback_query"]["message"]
    write(bot / "report.jsonl", [{"channel": "telegram", "body": body} for body in (TELEGRAM, reply)])
    _, out, _ = await askfirst("replay", "bot.py", "report.jsonl", cwd=bot)
    assert RUNS in out.splitlines()


@pytest.mark.parametrize("name", ["askfirst_bot", None])
async def test_in_a_group_of_telegram_the_bot_is_known_by_its_name(bot: Path, name: str | None) -> None:
    mention = json.loads((CHANNELS / "telegram/fixtures/group_mention_at_the_start.json").read_text())["update"]
    named = {"bot_name": name} if name is not None else {}
    (bot / "one.json").write_text(json.dumps({"channel": "telegram", "body": mention, **named}, indent=1))
    _, out, _ = await askfirst("replay", "bot.py", "one.json", cwd=bot)
    assert out.startswith("one.json  telegram  ")
    assert ("no answer" in out) == (name is None)


async def test_lines_of_text_are_messages_of_one_person(bot: Path) -> None:
    (bot / "said.txt").write_text("delete INV-42\n\nyes\n/pending\n")
    code, out, _ = await askfirst("replay", "bot.py", "said.txt", cwd=bot)
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("said.txt")] == [
        "said.txt:1  you:  delete INV-42",
        "said.txt:3  you:  yes",
        "said.txt:4  you:  /pending",
    ]
    assert RUNS in out.splitlines()
    assert not (bot / "deleted").exists() and not (bot / "told").exists()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{", "r.jsonl:1 is no recorded request"),
        ('{"a":' * 3_000 + "1" + "}" * 3_000, "r.jsonl:1 is no recorded request (Invalid JSON: recursion limit"),
        ('{"channel": "telegram"}', "r.jsonl is no recorded request (body: Field required): write {"),
        ('{"channel": "telegram", "body": {}, "secret": 1}', "(secret: Extra inputs are not permitted)"),
        ('{"channel": "telegrm", "body": {}}', "r.jsonl: there is no channel 'telegrm', only telegram, "),
        ('{"channel": "webchat", "body": {}}', "the web chat has no webhook: write what was said into a .txt file"),
        ('{"channel": "slack", "body": {}, "bot_name": "b"}', "slack knows its bot without bot_name: leave it out"),
        ("\n", "nothing is recorded in r.jsonl: write a request or a message a line"),
        ("\ud8ff", "r.jsonl is not in UTF-8"),
    ],
)
async def test_a_wrong_file_is_told_with_its_mend(bot: Path, written: str, said: str) -> None:
    (bot / "r.jsonl").write_text(written, encoding="utf-8", errors="surrogatepass")
    code, _, err = await askfirst("replay", "bot.py", "r.jsonl", cwd=bot)
    assert code == 1
    assert said in err


async def test_unreadable_and_non_message_records_are_shown(bot: Path) -> None:
    reaction = json.loads((CHANNELS / "slack/fixtures/reaction_added.json").read_text())["payload"]
    unknown = json.loads((CHANNELS / "telegram/fixtures/unknown_kind.json").read_text())["update"]
    records: list[Mapping[str, Any]] = [
        {"channel": "telegram", "body": "no JSON"},
        {"channel": "telegram", "body": unknown},
        {"channel": "slack", "body": reaction},
        {"channel": "telegram", "body": PRESS},
    ]
    write(bot / "report.jsonl", records)
    code, out, _ = await askfirst("replay", "bot.py", "report.jsonl", cwd=bot)
    assert code == 0
    assert "    answered with 400, since it cannot be read: telegram: the body is not a JSON object in UTF-8" in out
    assert "    of a kind that is not understood: no answer" in out
    assert "report.jsonl:3  slack  U061F7AUR: Reaction" in out
    assert "    this replay has shown no such button" in out
