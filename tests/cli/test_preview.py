"""The planned acts of a bot, without asking: ``askfirst preview`` and ``askfirst tools``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.wording import say
from tests.cli.counting import write_counting_bot
from tests.cli.processes import askfirst
from tests.mcp.conftest import BUSY
from tests.mcp.prepared import Host


def preview(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["preview", "bot.py", *arguments])


def test_the_prompt_is_the_one_that_is_sent(here: Path) -> None:
    shown = preview("delete_invoice", json.dumps({"invoice_id": "inv-42"}))
    assert shown.exit_code == 0, shown.output
    assert (
        "Delete invoice INV-42 for good?\n\n"
        "• Customer: “Café Aurora”\n• Amount: “410.20 EUR”\n• Invoice: inv-42\n\n" in shown.output
    )
    assert "You have 15 minutes to answer." in shown.output
    assert shown.output.endswith("[ Confirm ]  [ Cancel ]  [ Change ]\n")
    written = preview("delete_invoice", json.dumps({"invoice_id": "inv-42"}), "--markdown")
    assert "**Delete invoice INV\\-42 for good?**" in written.output


WORDED = """
from gateway import Agent, ChannelAgent, tool

@tool(confirm="Send {text}?")
def send(text: str) -> str:
    "Send."
    return ""

own = {"prompt_window": "Time left: {duration}.", "button_confirm": "Go", "cmd_new": "Start over"}
bot = ChannelAgent(Agent([send]), wording={"en": own})
"""


def test_commands_about_a_bot_speak_its_own_sentences(here: Path) -> None:
    (here / "bot.py").write_text(WORDED)
    output = preview("send", '{"text": "x"}').output
    assert "Time left: 15 minutes." in output and "[ Go ]  [ Cancel ]" in output
    manifest = CliRunner().invoke(
        main, ["slack", "manifest", "bot.py"], env={"ASKFIRST_PUBLIC_URL": "https://a.example"}
    )
    assert "Start over" in manifest.output and say("cmd_new", "en") != "Start over"


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


# ── which bot is meant ──


def previewed(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["preview", *arguments])


@pytest.mark.parametrize("bot", ["bot.py", "bot.py:bot", "bot:bot", "bot"])
def test_a_bot_is_a_file_or_a_module(here: Path, bot: str) -> None:
    result = previewed(bot, "delete_invoice", '{"invoice_id": "INV-42"}')
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
    result = previewed(bot, "delete_invoice")
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr


WRONG = {
    "verb": (
        'Confirm("Go?", verb="two words")',
        "Confirm: verb should be a single word such as 'restart', not 'two words'",
    ),
    "answer": ('Agent([tool(confirm=Confirm(verb="ok"))(go)])', "ChannelAgent: tool 'go' has the verb 'ok'"),
    "definition": ('tool(confirm="Go {where}?")(go)', "Tool 'go': 'Go {where}?' names {where}"),
}


def test_a_wrong_option_is_told_in_a_line(here: Path) -> None:
    (here / "head.py").write_text('def go() -> None:\n    """Go."""\n')
    wrong = {}
    for name, (written, said) in WRONG.items():
        head = "from askfirst import Agent, ChannelAgent, Confirm, tool\nfrom head import go\n"
        (here / f"{name}.py").write_text(f"{head}\nbot = ChannelAgent({written})\n")
        lines = previewed(f"{name}.py", "go").stderr.splitlines()
        told = f"Error: {name}.py cannot be loaded: {said}"
        if len(lines) != 1 or not lines[0].startswith(told) or not lines[0].endswith(f"({name}.py, line 4)"):
            wrong[name] = lines
    assert wrong == {}


def test_error_in_the_file_shows_only_the_authors_frames(here: Path) -> None:
    (here / "helper.py").write_text("def help():\n    return 1 / 0\n")
    (here / "broken.py").write_text("from helper import help\n\nhelp()\n")
    result = previewed("broken.py", "anything")
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
    result = previewed("broken.py", "act")
    assert result.exit_code == 1
    assert "(broken.py, line 3)" in result.stderr
    assert "gateway/tools" not in result.stderr
    assert "x: has no annotation" in result.stderr


def test_env_file_beside_the_bot_is_read_before_it_is_loaded(here: Path) -> None:
    (here / "named.py").write_text(
        "import os\nfrom gateway import Agent, ChannelAgent, tool\n"
        "@tool(confirm='Greet ' + os.environ['SHOP'] + '?')\ndef greet() -> str:\n    'Greet.'\n    return ''\n"
        "bot = ChannelAgent(Agent([greet]))\n"
    )
    (here / ".env").write_text("SHOP=Aurora\n")
    assert "Greet Aurora?" in previewed("named.py", "greet").output


# ── the list of tools ──


BOT = """
from gateway import Agent, ChannelAgent, tool

@tool
async def wipe() -> str:
    "Wipe the disk."
    return "done"

@tool(confirm="Delete {name}?")
async def delete(name: str) -> str:
    "Delete something."
    return "gone"

@tool(read_only=True)
async def look() -> str:
    "Look around."
    return "nothing"

bot = ChannelAgent(Agent([look, delete, wipe], provider="demo"))
"""


async def test_tools_are_listed_with_the_dangerous_first(here: Path) -> None:
    (here / "bot.py").write_text(BOT)
    code, out, err = await askfirst("tools", "bot.py", cwd=here)
    assert (code, out.splitlines()) == (
        0,
        [
            "wipe    runs   it has no confirm=, and is neither read_only nor idempotent",
            "look    runs   read_only",
            "delete  asks   confirm=",
        ],
    )
    warning, advice = err.splitlines()
    assert warning.startswith("warning: wipe: runs without asking anybody.")
    assert advice.startswith("advice: delete: nobody describes name. Write an Args: section")


VAGUE_BOT = """
import enum
from typing import Annotated, Literal
from pydantic import Field
from gateway import Agent, ChannelAgent, tool

class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"

@tool(read_only=True)
async def order(
    size: Annotated[Size, Field(description="Either small or large")],
    way: Annotated[Literal["card", "cash"], Field(description="One of card and cash")],
    colour: Annotated[str, Field(description="The colour: 'red' or 'blue'")],
    speed: Annotated[str, Field(description="One of slow and fast")],
    note: Annotated[str, Field(description="What the cook should know")],
    plate: Size,
    cake_id: str,
    number: int,
) -> str:
    "Order a cake."
    return ""

bot = ChannelAgent(Agent([order], provider="demo"))
"""


@pytest.mark.ledger("TOOL-56")
async def test_values_the_model_has_to_guess_are_shown_with_the_mend(here: Path) -> None:
    (here / "bot.py").write_text(VAGUE_BOT)
    code, out, err = await askfirst("tools", "bot.py", cwd=here)
    assert (code, out.splitlines()) == (0, ["order  runs   read_only"])
    assert err.splitlines() == [
        "advice: order: nobody describes number. Write an Args: section into the docstring, or "
        'Annotated[..., Field(description="...")]',
        "advice: order: the choices of colour, speed are words only, and any text is taken. Annotate Literal[...] or "
        "an Enum",
    ]


@pytest.mark.ledger("TOOL-56")
@pytest.mark.parametrize(
    ("written", "changed", "mend"),
    [
        ("number: int", "number", "number: has no annotation. Say its type"),
        ('    "Order a cake."\n', "", "has no description. Write a docstring or give description="),
    ],
)
async def test_tool_without_types_or_description_is_an_error(here: Path, written: str, changed: str, mend: str) -> None:
    (here / "bot.py").write_text(VAGUE_BOT.replace(written, changed))
    code, _, err = await askfirst("tools", "bot.py", cwd=here)
    assert code == 1 and mend in err


async def test_json_and_doctor_list_the_unasked_tools_first(here: Path) -> None:
    (here / "bot.py").write_text(BOT)
    code, out, _ = await askfirst("tools", "bot.py", "--json", cwd=here)
    assert code == 0
    first = json.loads(out)[0]
    assert (first["tool"], first["how"], first["unasked"]) == ("wipe", "runs", True)
    _, out, _ = await askfirst("doctor", "bot.py", cwd=here)
    assert "ok    tools: wipe runs, look runs, delete asks" in out
    assert "warn  tools: wipe: runs without asking anybody." in out


MCP_BOT = """
from gateway import Agent, ChannelAgent, MCPServer, ToolPolicy, tool

@tool(name="open_die", read_only=True)
async def die() -> str:
    "Throw one."
    return "3"

command = COMMAND
policy = ToolPolicy(allow=["open_look"], deny=["open_fail"])
shut, opened = MCPServer(command=command), MCPServer(command=command, prefix="open_", policy=policy)
bot = ChannelAgent(Agent([die, shut, opened], provider="demo"))
"""


async def test_tools_of_mcp_servers_are_listed_with_hints_and_policy(here: Path, host: Host) -> None:
    (here / "bot.py").write_text(MCP_BOT.replace("COMMAND", repr(host.command(BUSY))))
    code, out, err = await askfirst("tools", "bot.py", cwd=here)
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert code == 0 and len(lines) == 18
    assert "open_look runs allow list: 'open_look'; of MCP server open, which says: read-only" in lines
    assert "open_fail never deny list: 'open_fail'; of MCP server open, which says nothing about its effects" in lines
    asks = "asks no policy= of its server allows it; of MCP server"
    assert any(line.startswith(f"open_pay {asks} open") for line in lines)
    assert any(line.startswith(f"look {asks} python") for line in lines)
    assert "open_die runs read_only" in lines
    assert "the tool 'open_die' of MCP server open is left out" in err
    code, out, _ = await askfirst("preview", "bot.py", "open_pay", '{"amount": 3}', cwd=here)
    assert code == 0 and "“open pay”" in out


APPROVED = """
from gateway import Agent, Approvers, Confirm, Preview, ToolContext, tool

async def asked(order: str, ctx: ToolContext) -> Preview:
    return Preview(text=f"Refund {order} to {ctx.person}?")

@tool(confirm=Confirm(asked, approvers=Approvers(people=["slack:T1:U7", "slack:T1:U8"], need=2, name="our managers")))
async def refund(order: str) -> str:
    "Refund an order."
    return ""

bot = Agent([refund])
"""


def test_preview_with_approvers_shows_both_questions(here: Path) -> None:
    (here / "bot.py").write_text(APPROVED)
    shown = preview("refund", '{"order": "A-17"}', "--person", "telegram:1:42")
    assert shown.exit_code == 0, shown.output
    own, approvers = shown.output.split("\nEach approver reads:\n")
    assert "Refund A-17 to telegram:1:42?" in own and "I have asked our managers." in own
    assert own.endswith("[ Cancel ]  [ Change ]\n")
    assert "Telegram 42 asks for your approval." in approvers and approvers.endswith("[ Confirm ]  [ Cancel ]\n")
    assert preview("refund", "{}", "--person", "ana").exit_code == 2
