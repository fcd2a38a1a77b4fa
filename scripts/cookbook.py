"""Writes the bots of the cookbook into their pages, and the conversation that each leads to.

The bots are the templates of ``askfirst init``. The conversations are played here: the engine is real, the model and
the people are scripted. ``python -m scripts.cookbook`` rewrites the pages.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from click.testing import CliRunner

from channels.formatting import read_markdown, to_plain
from gateway import Gateway, Settings
from gateway.cli import main
from gateway.testing import ChatDriver, FakeClock, ScriptedProvider, ToolCall
from gateway.testing.driver import Shown
from gateway.web import serve
from tests.engine.rig import until
from tests.fakes.twilio import FakeTwilio, Sent
from tests.ports import free_port

__all__ = ["PAGES", "written"]

DOCS: Final = Path(__file__).parent.parent / "docs"
_FILE: Final = re.compile(r"```python\n# (?P<name>\w+\.py)\n.*?^```$", re.MULTILINE | re.DOTALL)
_CONVERSATION: Final = re.compile(r"```text\n.*?^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"\b(?:OK|NO) (\w{4})\b")
_LINK: Final = re.compile(r"http://127\.0\.0\.1:\d+/artifacts/[\w-]+")
_CODES: Final = ("K7PA", "M9QD", "R4TX", "W6HC", "A3NF", "G7YU", "P4VE")
_AT: Final = datetime(2026, 12, 1, 14, 2, tzinfo=UTC)
"""When the conversations are played, on the clock of the store."""


@dataclass(frozen=True)
class Play:
    """The script of the model, and what the people do: (person, text) or (person, "[button]")."""

    model: Sequence[Any]
    deeds: Sequence[tuple[str, str]]
    names: Mapping[str, str] = field(default_factory=dict)
    """Person -> what the page calls them; else the name itself."""

    def name(self, person: str) -> str:
        return self.names.get(person, person.capitalize())

    def did(self, person: str, deed: str) -> str:
        return f"{self.name(person)} presses {deed}" if deed.startswith("[") else f"{self.name(person)} writes: {deed}"


EVA, BEN, ANA = "slack:T1:Eva", "webchat:site:ben", "+15557654321"
PLAYS: Final[Mapping[str, Play]] = {
    "support": Play(
        [
            ToolCall("show_order", {"order": "A-17"}),
            "Order A-17 was delivered.",
            ToolCall("refund_order", {"order": "A-17"}),
        ],
        [("ana", "where is A-17?"), ("ana", "It came broken. I want my money back."), (EVA, "[Confirm]")],
        {EVA: "Eva, in Slack,"},
    ),
    "ops": Play(
        [ToolCall("restart_service", {"service": name}) for name in ("worker", "worker", "mail")],
        [
            ("ben", "restart the worker"),
            ("ben", "[Yes, and for 1 hour]"),
            ("ben", "once more, please"),
            ("ben", "and mail"),
            ("ben", "[Confirm]"),
            ("ben", "/stop"),
        ],
    ),
    "orders": Play(
        [
            ToolCall("place_order", {"item": "rolls", "pieces": 6}),
            ToolCall("cancel_order", {"number": 1}),
        ],
        [
            (ANA, "six rolls please"),
            (ANA, "OK {code}"),
            (ANA, "I do not need them after all"),
            (ANA, "OK {code}"),
        ],
        {ANA: "Ana"},
    ),
    "site": Play(
        [
            ToolCall("cancel_order", {"order": "A-17"}),
            "You have no order A-17.",
            ToolCall("cancel_order", {"order": "A-18"}),
        ],
        [(BEN, "cancel order A-17"), (BEN, "then A-18"), (BEN, "[Yes, do it]")],
        {BEN: "Ben, who is logged in,"},
    ),
    "mcp": Play(
        [
            ToolCall("tickets_find", {"words": "till"}),
            "Number 2: the till prints no receipts.",
            ToolCall("tickets_close", {"number": 2}),
            "Ticket 2 is closed.",
        ],
        [("ana", "what is wrong with the till?"), ("ana", "it prints again, close it"), ("ana", "yes")],
    ),
}
PAGES: Final = {name: DOCS / f"cookbook-{name}.md" for name in (*PLAYS, "nightly")}
"""Template -> page."""


def written(template: str) -> str:
    """Return a page with the files of its template and the conversation, as both are now."""
    page = PAGES[template].read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as directory:
        made = CliRunner().invoke(main, ["init", directory, "--template", template])
        assert made.exit_code == 0, made.output
        with patch.dict(os.environ, {"MANAGERS": EVA}), patch.object(sys, "stdin", io.StringIO()):
            bot = _module(Path(directory) / "bot.py", template)
            conversation = asyncio.run(_conversation(template, bot))

        def source(found: re.Match[str]) -> str:
            text = (Path(directory) / found["name"]).read_text(encoding="utf-8")
            return f"```python\n# {found['name']}\n{text}```"

        page = _FILE.sub(source, page)
    return _CONVERSATION.sub(lambda _: f"```text\n{conversation}```", page, count=1)


def _module(file: Path, template: str) -> ModuleType:
    spec = spec_from_file_location(f"cookbook_{template}", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look it up
    spec.loader.exec_module(module)
    return module


async def _conversation(template: str, module: ModuleType) -> str:
    if template == "nightly":
        return "\n".join([line async for line in _session(module)]) + "\n"
    bot, play = module.bot, PLAYS[template]
    if template == "orders":
        told = await _on_whatsapp(bot, play, Path(str(module.__file__)).with_name("files"))
    else:
        told = await _in_a_chat(bot, play)
    text = "\n\n".join(told) + "\n"
    text = _LINK.sub("https://desk.example.com/artifacts/00IU5IsVRv2qbcouDKi00TfCyn", text)
    codes = dict(zip(dict.fromkeys(_CODE.findall(text)), _CODES, strict=False))
    return _CODE.sub(lambda found: found[0].replace(found[1], codes[found[1]]), text)


async def _session(module: ModuleType) -> AsyncIterator[str]:
    for report in module.REPORTS.copy():
        yield f'$ python bot.py "delete report {report}"'
        yield await module.main(f"delete report {report}")


async def _in_a_chat(bot: Any, play: Play) -> list[str]:
    told: list[str] = []
    seen: dict[int, str] = {}
    clock = FakeClock()
    clock.offset_seconds = (_AT - datetime.now(UTC)).total_seconds()
    async with ChatDriver(bot, provider=ScriptedProvider(play.model), clock=clock) as chat:
        for person, deed in play.deeds:
            told.append(play.did(person, deed))
            await (chat.presses(person, deed[1:-1]) if deed.startswith("[") else chat.says(person, deed))
            for message in chat.messages:
                text = _looks(message)
                if seen.get(message.number) != text:
                    reads = "now reads there" if message.number in seen else "reads"
                    told.append(f"{play.name(message.place)} {reads}:\n{text}")
                    seen[message.number] = text
    return told


async def _on_whatsapp(bot: Any, play: Play, files: Path) -> list[str]:
    """Play the conversation over the real channel, against a stand-in for Twilio."""
    told: list[str] = []
    bot.agent = bot.agent.using(ScriptedProvider(play.model))
    port = free_port()
    async with FakeTwilio() as twilio:
        settings = Settings(
            store="sqlite:///:memory:",
            artifacts=files,
            allow=["whatsapp:*"],
            public_url=f"http://127.0.0.1:{port}",
            twilio_account_sid=twilio.account_sid,
            twilio_auth_token=twilio.auth_token,
            twilio_api_url=twilio.url,
            twilio_whatsapp_from=f"whatsapp:{twilio.whatsapp}",
        )
        async with (gateway := await asyncio.to_thread(Gateway, bot, settings)):
            running = await serve(gateway.aiohttp_app(), "127.0.0.1", port)
            twilio.webhook_url = f"http://127.0.0.1:{port}/webhooks/twilio"
            for person, deed in play.deeds:
                before = len(twilio.sent)
                codes = [found[1] for sent in twilio.sent for found in _CODE.finditer(sent.body)]
                said = deed.format(code=codes[-1] if codes else "")
                told.append(play.did(person, said))
                await twilio.person_says(person, said, whatsapp=True)
                await until(partial(_all_sent, gateway))
                told += [f"{play.name(person)} reads:\n{_indented(_got(sent))}" for sent in twilio.sent[before:]]
            await running.cleanup()
    return told


async def _all_sent(gateway: Gateway) -> bool:
    """Return True when no work is left. A message may wait for the pace of the platform."""
    return await gateway.engine.idle() and not (await gateway.store.stats()).parts


def _got(sent: Sent) -> str:
    return sent.body or "\n".join(f"(the file {file.filename})" for file in sent.media)


def _looks(message: Shown) -> str:
    pieces = [to_plain(read_markdown(message.text))] if message.text else []
    pieces += [f"(the file {file.filename})" for file in message.artifacts]
    if message.buttons:
        pieces.append(" ".join(f"[{label}]" for label in message.buttons))
    return _indented("\n\n".join(pieces))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    for name, path in PAGES.items():
        path.write_text(written(name), encoding="utf-8")
