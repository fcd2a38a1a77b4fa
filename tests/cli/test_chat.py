"""The terminal chat, as a script uses it: lines in, answers out."""

from __future__ import annotations

import re
from pathlib import Path

import pypdf

from tests.cli.processes import askfirst


async def chat(here: Path, *lines: str) -> str:
    code, out, err = await askfirst("chat", "bot.py", cwd=here, stdin="\n".join(lines))
    assert code == 0, err
    assert err == "bot.py, model: demo. /help shows the commands, /file PATH sends a file, Ctrl-D ends.\n"
    return out


def in_order(text: str, *pieces: str) -> bool:
    at = 0
    for piece in pieces:
        at = text.find(piece, at) + 1
        if not at:
            return False
    return True


async def test_a_yes_does_it_once_and_a_no_does_not(here: Path) -> None:
    lines = ["list invoices", "", "delete invoice INV-42", "yes", "yes", "delete invoice INV-7", "no", "list invoices"]
    out = await chat(here, *lines)
    assert in_order(
        out,
        "INV-42 | Café Aurora",
        "Delete invoice INV-42 for good?",
        "1 Confirm  2 Cancel",
        "Invoice INV-42 of Café Aurora is deleted.",
        "already done",
        "Delete invoice INV-7 for good?",
        "Not done: Delete invoice INV-7 for good",
        "INV-7  | Blue Bakery",
    ), out
    assert out.count("is deleted.") == 1
    assert "Café Aurora" not in out[out.index("Not done") :]


async def test_a_file_is_put_into_a_directory_beside_those_of_its_name(here: Path) -> None:
    out = await chat(here, "send me INV-7 as PDF", "send me INV-7 as PDF")
    assert "[file: askfirst-files/INV-7.pdf]" in out
    assert "[file: askfirst-files/INV-7-2.pdf]" in out
    shown = pypdf.PdfReader(here / "askfirst-files" / "INV-7.pdf").pages[0].extract_text()
    assert "Invoice INV-7" in shown
    assert "Blue Bakery" in shown


async def test_nothing_that_a_tool_says_steers_the_terminal(here: Path) -> None:
    (here / "bot.py").write_text(
        "from gateway import Agent, tool\n"
        "@tool(read_only=True)\ndef show_title() -> str:\n    'Show the title.'\n    return '\\x1b]0;owned\\x07 done'\n"
        "bot = Agent([show_title])\n"
    )
    out = await chat(here, "show the title")
    assert "\x1b" not in out
    assert "done" in out


async def test_nothing_is_kept(here: Path) -> None:
    await chat(here, "delete invoice INV-42")
    assert not (here / ".askfirst").exists()


async def test_numbers_press_the_buttons_while_a_question_is_open(here: Path) -> None:
    """Finding 11: after "maybe", a yes alone is not clear enough any more, and a number still is."""
    lines = ["delete invoice INV-42", "maybe", "yes", "3", "1", "list invoices"]
    out = await chat(here, *lines)
    assert out.count("1 Confirm  2 Cancel\n") == 4
    assert "not clear enough" in out
    assert out.count("is deleted.") == 1
    assert in_order(out, "not clear enough", "1 Confirm  2 Cancel", "did not understand", "is deleted.", "Blue Bakery")
    assert "1 Confirm" not in out[out.index("is deleted.") :]


async def test_of_two_questions_each_button_has_its_number(here: Path) -> None:
    out = await chat(here, "delete invoice INV-42", "delete invoice INV-7", "4", "1", "list invoices")
    [numbers] = re.findall(r"1 Confirm (\w{4})  2 Cancel (\w{4})  3 Confirm (\w{4})  4 Cancel (\w{4})\n", out)
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]
    assert in_order(out, "Not done: Delete invoice INV-7", "1 Confirm  2 Cancel", "INV-42 of Café Aurora is deleted.")


async def test_buttons_in_a_reply_end_with_a_sentence(here: Path) -> None:
    (here / "bot.py").write_text(
        "from gateway import Agent, Button, ChannelAgent, Reply\n"
        "bot = ChannelAgent(Agent([]))\n"
        "@bot.command('which')\n"
        "async def which(ctx, text):\n    return Reply(text='Which?', buttons=[Button(label='This', token='t')])\n"
    )
    code, _, err = await askfirst("chat", "bot.py", cwd=here, stdin="/which")
    assert code == 1
    assert "there are no handlers for them yet" in err
    assert "Traceback" not in err
    assert "pydantic" not in err


LOOKING = """
from askfirst import Agent, ChannelAgent, ToolContext, tool


@tool(read_only=True)
async def list_files(ctx: ToolContext) -> str:
    \"\"\"List the files.\"\"\"
    return ", ".join([f"{file.filename}: {len((await file.open()).read())} bytes" for file in ctx.attachments])


bot = ChannelAgent(Agent([list_files]))
"""


async def test_a_file_is_sent_by_its_path_as_a_shell_writes_it(here: Path) -> None:
    (here / "bot.py").write_text(LOOKING)
    (here / "my notes.txt").write_text("milk")
    (here / "cat.png").write_bytes(b"no picture")
    lines = [
        "/file my\\ notes.txt list files",
        f"/file '{here / 'my notes.txt'}' list files",
        '/file "cat.png" list files',
    ]
    out = await chat(here, *lines)
    assert in_order(out, "my notes.txt: 4 bytes", "my notes.txt: 4 bytes", "cat.txt: 10 bytes"), out


async def test_a_path_of_no_file_is_told(here: Path) -> None:
    code, out, err = await askfirst(
        "chat", "bot.py", cwd=here, stdin="/file gone.pdf look\n/file\n/file .\nlist invoices"
    )
    assert code == 0
    assert "gone.pdf is not a file." in err
    assert "/file needs a path" in err
    assert err.count("is not a file.") == 2
    assert "Café Aurora" in out
