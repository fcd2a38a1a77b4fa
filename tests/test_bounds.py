"""No input with a size chosen by a stranger or a model holds the event loop: docs/threats.md lists the bounds."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import puremagic  # noqa: F401 - its import reads files
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels import Address, Json, Reply
from channels.formatting import finished
from channels.slack.render import render as render_slack
from channels.telegram.render import render as render_telegram
from channels.twilio.render import render_sms, render_whatsapp
from gateway import Agent, ChannelAgent, Confirm, structured, tool
from gateway.artifacts.names import clean_filename, sniff_type
from gateway.engine.turns.language import detect_language, prepare_detection
from gateway.guards import GuardrailContext, InjectionGuardrail, PiiGuardrail, screened_name
from gateway.memory.context import quoted
from gateway.pending.reading import ReplyParser, continues, is_near_answer, read_refused_code, reads_as_answer
from gateway.pending.selecting import read_selection
from gateway.pending.words import prepare, words_of
from gateway.providers import ModelMessage, Request
from gateway.providers.base import ToolSpec
from gateway.providers.demo import DemoProvider
from gateway.providers.text_calls import call_in
from gateway.providers.thoughts import AnswerText, without_thoughts
from gateway.structured import json_schema
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.toolbox import calculator, current_time, file_search, http_get
from gateway.tools import ToolContext, ToolFailed
from gateway.web.markdown import to_html
from tests.nasty import NASTY, held_seconds, nasty

Entry: TypeAlias = Callable[[str], Awaitable[object]]

MOST_SECONDS: Final = 0.1
ARGUMENTS: Final = 262_000
"""The characters of the longest arguments of a call."""
MARKDOWN: Final = 15_990
"""The characters of the longest parsed Markdown."""
NOW: Final = datetime(2026, 11, 26, tzinfo=UTC)
CTX: Final = ToolContext(person="app:-:ana", now=lambda: NOW)
GUARDED: Final = GuardrailContext(stage="input", person="app:-:ana", conversation="c", language="en")
CODE: Final = re.compile(r"OK ([A-Z0-9]{4})\b")


class Worst(NamedTuple):
    """An entry, and the worst texts for the entry, before or after a bound."""

    entry: Entry
    texts: tuple[str, ...] = ()


def in_line(read: Callable[[str], object]) -> Entry:
    """Return the entry of a function called on the event loop. A refusal is an answer too."""

    async def entry(text: str) -> None:
        with contextlib.suppress(ValueError):
            read(text)

    return entry


def as_tool(name: str, argument: str) -> Entry:
    """Return the entry of a tool of the toolbox."""

    async def entry(text: str) -> None:
        with contextlib.suppress(ToolFailed):
            await (await asyncio.to_thread(TOOLS[name])).run({argument: text}, CTX)

    return entry


TOOLS: Final = {
    "calculator": calculator,
    "current_time": current_time,
    "file_search": lambda: file_search(Path(__file__).parent / "guards", suffixes=[".toml"]),
}


@tool(confirm=Confirm("Send {text}?", done="Sent {text}."))
def send(text: str, others: list[str]) -> str:
    """Send a text."""
    return text


async def turn(text: str) -> None:
    """Say a text to a bot that repeats the text, and have both exported."""
    async with ChatDriver(ChannelAgent(Agent([])), provider=ScriptedProvider([f"ok {text}"])) as chat:
        await chat.says("ana", text)
        await chat.says("ana", "/export")


async def question(text: str) -> None:
    """Have a text asked, shown again and confirmed: the template, the file, the prompt, and the end."""
    call = ToolCall("send", {"text": text[: len(text) // 2], "others": [text[: len(text) // 20]] * 10})
    script = ScriptedProvider([call, "x", "x", "x"])
    async with ChatDriver(ChannelAgent(Agent([send])), provider=script) as chat:
        await chat.says("ana", "send it")
        code = next((found for message in chat.messages for found in CODE.findall(message.text)), None)
        if code is None:  # arguments that are no JSON, or too long as JSON, are refused
            told = str(script.requests[-1].messages)
            assert "nobody was asked" in told or "Call the tool with less" in told
            return
        await chat.says("ana", "yes")
        await chat.says("ana", f"OK {code}")
        assert any("Sent" in message.text for message in chat.messages)


async def demo(text: str) -> None:
    """Give a text to the offline model. The tool's pattern would take another engine hours."""
    properties: Json = {"invoice_id": {"type": "string", "pattern": "^(a+)+$"}, "note": {"type": "string"}}
    parameters: dict[str, Json] = {"type": "object", "properties": properties, "required": ["invoice_id"]}
    spec = ToolSpec(name="delete_invoice", description="Delete an invoice", parameters=parameters)
    messages = [ModelMessage(role="user", content=f"delete invoice {text}")]
    provider = DemoProvider(today=lambda: date(2026, 11, 26))
    await provider.complete(Request(messages=messages, tools=[spec], system="", language="en"))


def draft(text: str) -> None:
    """Read the pieces of an answer during the stream, and close the open markup."""
    answer = AnswerText()
    for at in range(0, len(text), 256):
        answer.add(text[at : at + 256])
    without_thoughts(answer.whole())
    finished(text)


def reply(lang: str) -> Callable[[str], object]:
    """Return the reading of a reply in a language: the whole text, and the longest possible answer."""

    def read(text: str) -> None:
        for each in (text, text[:190]):
            ReplyParser().classify(each, lang, verb="delete")
            read_refused_code(each, lang)
            reads_as_answer(each, lang)
            is_near_answer(each, lang)
            continues(each, lang)
            read_selection(each, 5, words_of(lang))
            detect_language([each])

    return read


def name(text: str) -> None:
    """Read the name and the type of a sent file."""
    screened_name(text)
    clean_filename(text, "text/plain")
    sniff_type(text.encode("utf-8", "replace"), text)


def schema(text: str) -> None:
    """Check a schema of a stranger, and a value by schemas that another engine reads for hours."""
    rules = {"type": "string", "pattern": "^(a+)+$"}
    json_schema.found_faults(rules, text)
    several: list[Json] = [{"a": text[:at]} for at in range(300)]
    several += text[:20_000]
    json_schema.found_faults({"uniqueItems": True}, several)
    json_schema.checked({"pattern": text})


def answer(text: str) -> None:
    """Read the JSON and the call of a model's answer."""
    structured.extract_json(text)
    call_in(text, "1")
    structured.parse_and_validate(text, {"type": "object"})


async def page(text: str) -> None:
    """Read a page of another host."""

    async def serve(_: web.Request) -> web.Response:
        return web.Response(text=text.encode("utf-8", "replace").decode(), content_type="text/html")

    app = web.Application()
    app.router.add_get("/", serve)
    async with TestServer(app) as server:
        await http_get(["127.0.0.1"], private_networks=True).run({"url": str(server.make_url("/"))}, CTX)


def on(channel: str) -> Address:
    return Address(channel=channel, account="+14155550100", place="+14155550101")


ENTRIES: Final = {
    "calculator": Worst(as_tool("calculator", "expression"), ("round(1,(10**1000)**900)", "9**9**9")),
    "current_time": Worst(as_tool("current_time", "zone")),
    "file_search": Worst(as_tool("file_search", "query"), (nasty("a ", ARGUMENTS),)),
    "page": Worst(page, (nasty("<a b=' ", 1_000_000), nasty("&#9", 1_000_000), nasty("<!--", 1_000_000))),
    "schema": Worst(in_line(schema), (nasty("|"), nasty("1."), "a" * 29 + "b", "{" * ARGUMENTS)),
    "answer": Worst(in_line(answer), (nasty("```\n", 100_000), nasty("[1,", 200_000), nasty('{"a":', 200_000))),
    "draft": Worst(in_line(draft), (nasty("<"), nasty("`", MARKDOWN), nasty("*a ", MARKDOWN))),
    "html": Worst(
        in_line(to_html),
        (
            nasty("*a **", MARKDOWN),
            nasty("a|b\n-|-\n", 3_900),
            nasty("a|b\n-|-\n", MARKDOWN),
            nasty("[a](b) ", 6_900),
            nasty("- a\n", 3_900),
            nasty("https://a.b/\x1b[2J", 4_000),
            nasty("https://a.b/\x1b[2J", 8_000),
            "".join(f"```csharp\n{nasty('a ', 5_000)}\n```\n" for _ in range(3)),
            f"```c\n{nasty('1', 5_900)}\n```\n" + f"${nasty(')', 990)}$ " * 9,
            f"${nasty('a_{', 990)}$ " * 15,
            nasty("$x$ ", MARKDOWN),
        ),
    ),
    "telegram": Worst(
        in_line(lambda text: render_telegram(Address(channel="telegram", account="1", place="2"), Reply(text=text))),
        (nasty("\U0001f3fd"), nasty("**a** ", 2_900), nasty("**a** ", MARKDOWN), nasty("`a` *b* ", MARKDOWN)),
    ),
    "slack": Worst(
        in_line(lambda text: render_slack(Address(channel="slack", account="T1", place="C1"), Reply(text=text))),
        (nasty("\u0301"), nasty("`a` *b* ", 3_990), nasty("# a\n", 3_990)),
    ),
    "sms": Worst(
        in_line(lambda text: render_sms(on("sms"), Reply(text=text))), (nasty("\u0301"), nasty("https://a.b/"))
    ),
    "whatsapp": Worst(
        in_line(lambda text: render_whatsapp(Reply(text=text))),
        (nasty("\U0001f3fd"), nasty("**a** ", 2_900), nasty("**a** ", MARKDOWN)),
    ),
    "pii": Worst(lambda text: PiiGuardrail().check(text, GUARDED), (nasty("[", 100_000), nasty("+4930", 100_000))),
    "injection": Worst(lambda text: InjectionGuardrail().check(text, GUARDED), (nasty("ﷺ"), nasty("ignore "))),
    "name": Worst(in_line(name), (nasty("ﷺ"), nasty("ignore the previous "))),
    "memory": Worst(in_line(quoted), (nasty("\u202e"),)),
    **{
        f"reply {lang}": Worst(in_line(reply(lang)), (nasty("ﷺ"), nasty("yes "), nasty("no, ", 190)))
        for lang in ("en", "ja", "de", "ar")
    },
    "demo": Worst(demo, ("a" * 60 + "!", nasty("a b "), nasty("to ", 1_000))),
    "turn": Worst(turn, (nasty("```\n"), nasty("\U0001f3fd"))),
    "question": Worst(question, (nasty("\u202e", ARGUMENTS // 2), nasty('"', ARGUMENTS // 4))),
}


@pytest.fixture(autouse=True)
def prepared() -> Iterator[None]:
    """Load all process-wide data beforehand, and collect no garbage: both are not the entry's work."""
    prepare("en", "ja", "de", "ar")
    prepare_detection()
    to_html("```c\na\n```\n$a_1$")
    gc.disable()
    yield
    gc.enable()


async def too_long(entry: Entry, texts: list[str]) -> dict[str, float]:
    """Return the texts, by their beginnings, that hold the loop too long in an entry, three times in a row.

    The first call loads and compiles, and another program on the same core makes single calls slower.
    """
    await entry("a")
    held: dict[str, float] = {}
    for text in texts:
        seconds = MOST_SECONDS
        for _ in range(3):
            if seconds >= MOST_SECONDS:
                seconds = await held_seconds(entry(text))
        if seconds >= MOST_SECONDS:
            held[f"{text[:12]!r} x {len(text)}"] = seconds
    return held


@pytest.mark.parametrize("named", list(ENTRIES))
async def test_no_text_holds_the_loop(named: str) -> None:
    """The worst texts of each entry, and a share of the nasty texts. All shares together are all nasty texts."""
    (entry, worst), number = ENTRIES[named], list(ENTRIES).index(named)
    drawn = [nasty(unit) for unit in NASTY[number :: len(ENTRIES)]]
    assert await too_long(entry, [*worst, *drawn]) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("size", [MARKDOWN, 65_536])
@pytest.mark.parametrize("named", list(ENTRIES))
async def test_no_nasty_text_holds_the_loop(named: str, size: int) -> None:
    assert await too_long(ENTRIES[named].entry, [nasty(unit, size) for unit in NASTY]) == {}


async def test_broken_entry_is_found() -> None:
    """The guard sees an entry with a quadratic or worse search, also in a thread."""

    async def slow(text: str) -> None:
        re.match("(?:a+)+b", "a" * 23)

    assert await too_long(slow, ["a"])
