"""``askfirst dev`` as an author uses it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import aiohttp
import pypdf
from yarl import URL

from gateway.cli.chat import _ButtonChoice, _Letters
from gateway.wording import LANGUAGES, say
from tests.cli.processes import Page, Process, askfirst, forked, running
from tests.fakes.telegram import FakeTelegram
from tests.mcp.conftest import over_http

DEV = ("dev", "bot.py", "--port", "0")


async def ends_well(process: Process) -> None:
    process.signal(signal.SIGINT)
    assert await process.ended() == 0
    assert "Traceback" not in process.said


async def test_page_answers_locally_and_the_store_is_beside_the_bot(here: Path, http: aiohttp.ClientSession) -> None:
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    async with forked("dev", here / "bot.py", "--port", "0", cwd=elsewhere) as process:
        page = Page(http, await process.url())
        await page.open()
        await page.says("list invoices")
        await page.sees("Café Aurora")
        await ends_well(process)
    assert (here / ".askfirst" / "askfirst.db").exists()
    assert list(elsewhere.iterdir()) == []


async def test_the_page_works_beside_the_public_url_of_serve(here: Path, http: aiohttp.ClientSession) -> None:
    async with forked(*DEV, cwd=here, env={"ASKFIRST_PUBLIC_URL": "https://bot.example.test"}) as process:
        page = Page(http, await process.url())
        await page.open()
        await page.says("list invoices")
        await page.sees("Café Aurora")
        await ends_well(process)


async def test_dev_listens_on_loopback_and_refuses_other_host_names(here: Path, http: aiohttp.ClientSession) -> None:
    async with forked(*DEV, cwd=here) as process:
        url = URL(await process.url())
        for host, status in (("evil.example", 403), (f"localhost:{url.port}", 200), (f"[::1]:{url.port}", 200)):
            async with http.get(url / "chat", headers={"Host": host}) as answer:
                assert answer.status == status, host
        listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line]
        assert [address for address in listening if address.endswith(f":{url.port:04X}")] == [
            f"0100007F:{url.port:04X}"
        ]


async def test_saving_the_bot_file_restarts_it(here: Path, http: aiohttp.ClientSession) -> None:
    bot = here / "bot.py"
    async with forked(*DEV, cwd=here, env={"PYTHONDONTWRITEBYTECODE": ""}) as process:
        await process.url()
        before = bot.stat()
        bot.write_text(bot.read_text().replace("Café Aurora", "Café Boreal"))
        os.utime(bot, ns=(before.st_atime_ns, before.st_mtime_ns))  # as two saves within one second
        page = Page(http, await process.url(times=2))
        await page.open()
        await page.says("list invoices")
        await page.sees("Café Boreal")
        await ends_well(process)


HANGING = """
import threading
from gateway import Agent, ChannelAgent, tool

@tool(read_only=True)
def list_invoices() -> str:
    "List the invoices."
    print("it hangs", flush=True)
    threading.Event().wait()

bot = ChannelAgent(Agent([list_invoices]))
"""


async def test_a_tool_that_hangs_in_a_thread_does_not_hold_the_process(here: Path, http: aiohttp.ClientSession) -> None:
    (here / "bot.py").write_text(HANGING)
    async with forked(*DEV, cwd=here) as process:
        page = Page(http, await process.url())
        await page.open()
        await page.says("list invoices")
        await process.says("it hangs")
        await ends_well(process)


async def test_without_watchfiles_it_runs_and_says_so(here: Path) -> None:
    (here / "watchfiles.py").write_text("raise ImportError", encoding="utf-8")
    (here / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'watchfiles' else found(name, *more)\n",
        encoding="utf-8",
    )
    async with running("dev", "bot.py", "--port", "0", cwd=here, env={"PYTHONPATH": str(here)}) as process:
        await process.says("It sees no save: pip install 'askfirst\\[dev\\]'. Ctrl-C ends.")


async def test_a_broken_file_is_shown_and_the_next_save_mends_it(here: Path) -> None:
    bot = here / "bot.py"
    good = bot.read_text()
    bot.write_text("bot = (")
    async with forked(*DEV, cwd=here) as process:
        await process.says("SyntaxError: '\\(' was never closed")
        await process.says("It starts with the next save")
        bot.write_text(good)
        await process.url()
        await ends_well(process)


FAILING = """
from contextlib import asynccontextmanager
from gateway import Agent, ChannelAgent

@asynccontextmanager
async def open_books():
    raise OSError("postgres://user:hunter2@db")
    yield

bot = ChannelAgent(Agent([]), lifespan=open_books)
"""


async def test_failing_lifespan_is_shown_and_the_next_save_restarts(here: Path) -> None:
    bot = here / "bot.py"
    good = bot.read_text()
    bot.write_text(FAILING)
    async with forked(*DEV, cwd=here) as process:
        await process.says(r"the bot's lifespan failed: OSError \(bot.py:7 open_books\)")
        await process.says("It starts with the next save")
        assert "channel_agent.py" not in process.said, "only the author's own frames"
        bot.write_text(good)
        await process.url()
        process.signal(signal.SIGINT)
        assert await process.ended() == 0


async def test_a_changed_setting_is_taken_up(here: Path) -> None:
    env = here / ".env"
    env.write_text("ASKFIRST_PROVIDER=demo\n")
    async with forked(*DEV, cwd=here) as process:
        await process.says("model: demo")
        env.write_text("ASKFIRST_PROVIDER=openai:gpt-5-mini\nOPENAI_API_KEY=sk-test-0123456789\n")
        await process.says("model: openai")
        await ends_well(process)


async def test_demo_replaces_a_model_without_a_key_but_no_unknown_one(here: Path) -> None:
    async with forked(*DEV, cwd=here, env={"ASKFIRST_PROVIDER": "openai:gpt-5-mini"}) as process:
        await process.says("model: demo .* in place of the bot.s own, for OPENAI_API_KEY is not set")
    code, _, err = await askfirst(*DEV, cwd=here, env={"ASKFIRST_PROVIDER": "oracle:delphi"})
    assert code == 78
    assert "no such provider" in err


async def test_a_webhook_that_is_in_the_way_is_said(here: Path) -> None:
    async with FakeTelegram() as telegram:
        env = {
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_WEBHOOK_SECRET": "kQ7vX2mB9tR4wZ8nL5cJ",
            "TELEGRAM_API_URL": telegram.url,
            "ASKFIRST_PUBLIC_URL": "https://bot.example.com",
        }
        code, out, _ = await askfirst("webhooks", "set", "bot.py", cwd=here, env=env)
        assert (code, out.splitlines()[0]) == (0, "telegram: https://bot.example.com/webhooks/telegram")
        assert telegram.webhook["secret"] == env["TELEGRAM_WEBHOOK_SECRET"]
        assert set(telegram.commands) == {"", *LANGUAGES}
        assert {"command": "stop", "description": say("cmd_stop", "es")} in telegram.commands["es"]
        async with forked(*DEV, cwd=here, env=env) as process:
            await process.says("WARNING.*telegram.*webhook")
            code, out, _ = await askfirst("webhooks", "delete", cwd=here, env=env)
            assert (code, out) == (0, "telegram: deleted\n")
            ana = telegram.person("Ana")
            await telegram.person_says(ana, ana, "list invoices")
            await telegram.wait_for(lambda: telegram.last(ana))
        code, out, _ = await askfirst("webhooks", "show", "--json", cwd=here, env=env)
        assert (code, out) == (0, '{\n  "telegram": null\n}\n')


async def test_registering_needs_an_address_and_a_channel(here: Path) -> None:
    code, _, err = await askfirst("webhooks", "set", cwd=here)
    assert code == 78
    assert "ASKFIRST_PUBLIC_URL: set it" in err
    code, _, err = await askfirst("webhooks", "show", cwd=here)
    assert code == 1
    assert "no channel with a webhook is on" in err


async def test_a_parallel_start_on_the_same_store_is_refused(here: Path) -> None:
    async with forked(*DEV, cwd=here) as process:
        await process.url()
        code, _, err = await askfirst(*DEV, cwd=here)
        assert code == 1
        assert "is in use by process" in err
        assert await asyncio.to_thread((here / ".askfirst" / "askfirst.db.sock").is_socket), "the first one's stays"


async def test_mcp_servers_of_the_command_line_add_their_tools(here: Path, tmp_path: Path) -> None:
    async with over_http(tmp_path) as url, forked(*DEV, "--mcp", url, cwd=here) as process:
        await process.url()
        await process.says("pay asks")
        await ends_well(process)


async def test_wrong_address_of_an_mcp_server_is_refused(here: Path) -> None:
    code, _, err = await askfirst(*DEV, "--mcp", "tools.example.org", cwd=here)
    assert code == 2 and "--mcp: should be an address such as https://example.org/mcp" in err


# ── The terminal chat, as a script uses it: lines in, answers out ──


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


async def test_a_yes_runs_the_action_once_and_a_no_does_not(here: Path) -> None:
    lines = ["list invoices", "", "delete invoice INV-42", "yes", "yes", "delete invoice INV-7", "no", "list invoices"]
    out = await chat(here, *lines)
    assert in_order(
        out,
        "INV-42 | Café Aurora",
        "Delete invoice INV-42 for good?",
        "a Confirm  b Cancel",
        "Invoice INV-42 of Café Aurora is deleted.",
        "already done",
        "Delete invoice INV-7 for good?",
        "Not done: Delete invoice INV-7 for good",
        "INV-7  | Blue Bakery",
    ), out
    assert out.count("is deleted.") == 1
    assert "Café Aurora" not in out[out.index("Not done") :]


async def test_a_file_is_kept_beside_files_of_the_same_name(here: Path) -> None:
    out = await chat(here, "send me INV-7 as PDF", "send me INV-7 as PDF")
    assert "[file: askfirst-files/INV-7.pdf]" in out
    assert "[file: askfirst-files/INV-7-2.pdf]" in out
    shown = pypdf.PdfReader(here / "askfirst-files" / "INV-7.pdf").pages[0].extract_text()
    assert "Invoice INV-7" in shown
    assert "Blue Bakery" in shown


async def test_text_of_a_tool_cannot_steer_the_terminal(here: Path) -> None:
    (here / "bot.py").write_text(
        "from gateway import Agent, tool\n"
        "@tool(read_only=True)\ndef show_title() -> str:\n    'Show the title.'\n    return '\\x1b]0;owned\\x07 done'\n"
        "bot = Agent([show_title])\n"
    )
    out = await chat(here, "show the title")
    assert "\x1b" not in out
    assert "done" in out


async def test_chat_keeps_no_store(here: Path) -> None:
    await chat(here, "delete invoice INV-42")
    assert not (here / ".askfirst").exists()


async def test_letters_press_the_buttons_while_a_question_is_open(here: Path) -> None:
    """Finding 11: after "maybe", a bare yes is no longer clear enough, but a letter still is."""
    lines = ["delete invoice INV-42", "maybe", "yes", "c", "A", "list invoices"]
    out = await chat(here, *lines)
    assert out.count("a Confirm  b Cancel\n") == 4
    assert "To be safe" in out
    assert out.count("is deleted.") == 1
    assert in_order(out, "To be safe", "a Confirm  b Cancel", "did not understand", "is deleted.", "Blue Bakery")
    assert "a Confirm" not in out[out.index("is deleted.") :]


async def test_of_two_questions_each_button_has_its_letter(here: Path) -> None:
    out = await chat(here, "delete invoice INV-42", "delete invoice INV-7", "d", "a", "list invoices")
    [codes] = re.findall(r"a Confirm (\w{4})  b Cancel (\w{4})  c Confirm (\w{4})  d Cancel (\w{4})\n", out)
    assert codes[0] == codes[1] != codes[2] == codes[3]
    assert in_order(out, "Not done: Delete invoice INV-7", "a Confirm  b Cancel", "INV-42 of Café Aurora is deleted.")


async def test_a_letter_typed_twice_presses_no_other_button(here: Path) -> None:
    out = await chat(here, "delete invoice INV-42", "delete invoice INV-7", "a", "a", "list invoices", "d")
    assert in_order(out, "INV-42 of Café Aurora is deleted.", "c Confirm  d Cancel", "already done", "Blue Bakery")
    assert in_order(out, "Blue Bakery", "Not done: Delete invoice INV-7"), out
    assert out.count("is deleted.") == 1


def test_names_of_buttons_go_on_and_are_no_words() -> None:
    letters = _Letters()
    names = [letters.name(_ButtonChoice("Confirm", "confirm", str(number))) for number in range(73)]
    assert (names[0], names[23], names[24], names[72]) == ("a", "z", "a2", "a4")
    assert len({*names}) == 73
    assert letters.name(_ButtonChoice("Confirm K7P2", "confirm", "24")) == "a2"


THREE = """
from gateway import Agent, tool
from gateway.testing import ScriptedProvider, ToolCall


@tool(confirm="Delete {name}?")
async def delete(name: str) -> str:
    \"\"\"Delete.\"\"\"
    return f"{name} is gone."


calls = [ToolCall("delete", {"name": name}) for name in ("A", "B", "C")]
bot = Agent([delete], provider=ScriptedProvider([calls, "I see."]))
"""


async def test_number_at_the_terminal_is_that_of_a_question(here: Path) -> None:
    (here / "bot.py").write_text(THREE)
    _, out, _ = await askfirst("chat", "bot.py", cwd=here, stdin="delete them\n3\n2, 1\n")
    assert "write the numbers of those to confirm, for example 1, 3" in out
    assert in_order(out, "C is gone.", "1. Delete “A”?", "2. Delete “B”?", "A is gone.", "B is gone."), out


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
