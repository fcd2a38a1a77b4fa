"""The prompt as a person would see it, without asking anybody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.cli.counting import write_counting_bot


def preview(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["preview", "bot.py", *arguments])


def test_the_prompt_is_the_one_that_is_sent(here: Path) -> None:
    shown = preview("delete_invoice", json.dumps({"invoice_id": "inv-42"}))
    assert shown.exit_code == 0, shown.output
    assert (
        "Delete invoice INV-42 for good?\n\n"
        "• Customer: “Café Aurora”\n• Amount: “410.20 EUR”\n• invoice_id: inv-42\n\n" in shown.output
    )
    assert "You have 15 minutes to answer." in shown.output
    assert shown.output.endswith("[ Confirm ]  [ Cancel ]  [ Change ]\n")
    written = preview("delete_invoice", json.dumps({"invoice_id": "inv-42"}), "--markdown")
    assert "**Delete invoice INV\\-42 for good?**" in written.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("delete_invoice", '{"invoice_id": "INV-99"}'),
            1,
            "nobody is asked, the model is told: There is no invoice INV-99.",
        ),
        (("delete_invoice",), 1, "invoice_id: Missing required parameter"),
        (("list_invoices",), 1, "list_invoices does not ask"),
        (("nothing",), 2, "only list_invoices, send_invoice_pdf, delete_invoice, record_payment"),
        (("delete_invoice", "{"), 2, "not JSON"),
        (("delete_invoice", "[]"), 2, "write an object"),
    ],
)
def test_preview_says_why_a_call_would_not_ask(here: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = preview(*arguments)
    assert result.exit_code == code
    assert said in result.stderr


def test_preview_too_long_for_a_message_is_printed_whole(here: Path) -> None:
    (here / "bot.py").write_text(
        "from gateway import Agent, tool\n"
        "@tool(confirm='Send {text}?')\ndef send(text: str) -> str:\n    'Send.'\n    return ''\n"
        "bot = Agent([send])\n"
    )
    shown = preview("send", json.dumps({"text": "x\u202ey " * 1000}))
    assert shown.output.startswith("Send “x\\u202ey x\\u202ey ")
    assert "above has all of it" in shown.output
    assert shown.output.endswith("[ Cancel ]  [ Change ]\n") and "Confirm ]" not in shown.output


def test_right_to_left_value_is_isolated_and_other_marks_escaped(here: Path) -> None:
    (here / "bot.py").write_text(
        "from gateway import Agent, tool\n"
        "@tool(confirm='Send {text}?')\ndef send(text: str) -> str:\n    'Send.'\n    return ''\n"
        "bot = Agent([send])\n"
    )
    shown = preview("send", json.dumps({"text": "\u05e9\u05dc\u2068\u202e"}))
    assert "Send \u2068“\u05e9\u05dc\\u2068\\u202e”\u2069?" in shown.output
    long = preview("send", json.dumps({"text": "\u05e9\u05dc" * 3000}))
    assert long.output.startswith("Send \u2068“" + "\u05e9\u05dc" * 3000 + "”\u2069?")


def test_a_policy_that_reviews_asks_and_one_that_denies_does_not(here: Path) -> None:
    (here / "bot.py").write_text(
        "from gateway import Agent, ToolPolicy, tool\n"
        "@tool\ndef pay(amount: int) -> str:\n    'Pay.'\n    return ''\n"
        "@tool(confirm=True)\ndef shred() -> str:\n    'Shred.'\n    return ''\n"
        "bot = Agent([pay, shred], policy=ToolPolicy(review=['pay'], deny=['shred']))\n"
    )
    assert "• amount: 5" in preview("pay", '{"amount": 5}').output
    denied = preview("shred")
    assert denied.exit_code == 1
    assert "the policy denies it" in denied.stderr


@pytest.mark.parametrize(
    ("tool", "warning"),
    [
        ("text", "differ in their text, so a confirmed call would not run: return a Preview with precondition="),
        ("table", "differ in their text and table, so a confirmed call would not run: return a Preview"),
        ("clock", "differ in their precondition, so a confirmed call would not run: leave out of precondition="),
        ("etag", ""),
        ("steady", ""),
        ("volatile", ""),
        ("template", ""),
    ],
)
def test_a_preview_that_differs_from_call_to_call_is_warned_of(here: Path, tool: str, warning: str) -> None:
    write_counting_bot(here)
    result = preview(tool, '{"folder": "old"}')
    assert result.exit_code == 0
    assert "[ Confirm ]" in result.stdout
    assert "warning" not in result.stdout
    if not warning:
        assert result.stderr == ""
        return
    assert f"warning: two previews of {tool} {warning}" in result.stderr
    assert result.stderr.endswith("or write Confirm(..., volatile=True)\n")
