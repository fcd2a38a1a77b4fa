"""Half an hour of a busy server, in steps of eight minutes, without growth and with answers in time.

Beside the people of three platforms, visitors of the chat page use the whole page. Each run of `make soak` is a step
for each store, with the data of the earlier steps. A step kills the server once, near the beginning, and then
measures one process. `.nightly/soak-*.json` keep the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.chaos.record import Record
from tests.cli.processes import Process, running
from tests.e2e.house import SECRET, SIGNING
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio
from tests.ports import free_port
from tests.soak.people import People
from tests.soak.visitors import Visitors
from tests.store.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".nightly"
STEP_SECONDS = float(os.environ.get("SOAK_SECONDS", "480"))
LOOKS = 8
"""The number of looks at a step."""
QUIET_SECONDS = 60.0
ANSWERED_SECONDS = 2.0
"""The bound of the 99th percentile of the time from an honest message to its answer."""
SETTLES_SECONDS = 10.0
"""Seconds after the restart without timed messages: the platforms redeliver the killed process's messages."""


class Kept:
    """The content of the store, seen from outside."""

    def __init__(self, directory: Path, server: RedisServer | None) -> None:
        self._file, self._server = directory / "askfirst.db", server

    async def look(self) -> dict[str, int]:
        """Return the size in bytes, and the number of rows or keys."""
        if self._server is not None:
            memory = await self._server.command("INFO", "memory")
            assert isinstance(memory, dict)
            return {"bytes": int(memory["used_memory"]), "rows": int(str(await self._server.command("DBSIZE")))}
        return await asyncio.to_thread(self._look_at_file)

    def _look_at_file(self) -> dict[str, int]:
        log = Path(f"{self._file}-wal")
        with contextlib.closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = [database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables]
        sizes = {"bytes": self._file.stat().st_size, "log": log.stat().st_size if log.exists() else 0}
        return {**sizes, "rows": sum(rows)}


@contextlib.asynccontextmanager
async def served(directory: Path, port: int, env: dict[str, str]) -> AsyncIterator[Process]:
    async with running(str(port), cwd=directory, env=env, module="tests.soak.server") as process:
        await process.url()
        yield process


def memory(process: Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kept_on", ["sqlite", "redis"])
async def test_a_busy_server_does_not_grow_and_answers_everybody(kept_on: str) -> None:
    directory = KEPT / f"soak-{kept_on}"
    directory.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        server = None
        if kept_on == "redis":
            server = RedisServer(directory)
            await server.start()
            stack.push_async_callback(server.shut_down)
        telegram = await stack.enter_async_context(FakeTelegram())
        slack = await stack.enter_async_context(FakeSlack(retry_seconds=3.0))
        twilio = await stack.enter_async_context(FakeTwilio(reports=()))
        await step(kept_on, directory, server, telegram, slack, twilio)


async def step(
    kept_on: str,
    directory: Path,
    server: RedisServer | None,
    telegram: FakeTelegram,
    slack: FakeSlack,
    twilio: FakeTwilio,
) -> None:
    """Run one step, with the data of the earlier steps."""
    file = KEPT / f"soak-{kept_on}.json"
    before = json.loads(file.read_text()) if file.exists() else []
    number = len(before) + 1
    people = People(telegram, slack, twilio, f"{kept_on}{number}x{os.getpid()}")
    people.number_from(number * 1_000_000)
    port, record = free_port(), directory / f"record-{number}.jsonl"
    env = {
        "ASKFIRST_STORE": server.url if server is not None else f"sqlite:///{directory / 'askfirst.db'}",
        "ASKFIRST_ALLOW": people.allowed,
        "ASKFIRST_SECRET": SIGNING,
        "ASKFIRST_ARTIFACTS": str(directory / "artifacts"),
        "ASKFIRST_PUBLIC_URL": f"http://127.0.0.1:{port}",
        **telegram.settings(SECRET),
        **slack.settings,
        "TWILIO_ACCOUNT_SID": twilio.account_sid,
        "TWILIO_AUTH_TOKEN": twilio.auth_token,
        "TWILIO_SMS_FROM": twilio.sms,
        "TWILIO_API_URL": twilio.url,
        "SOAK_RECORD": str(record),
        "PYTHONPATH": str(ROOT),
    }
    Record(record)
    kept, looks = Kept(directory, server), []
    url = f"http://127.0.0.1:{port}"
    telegram.webhook.update(url=f"{url}/webhooks/telegram", secret=SECRET, allowed_updates=KINDS)
    slack.webhook, twilio.webhook_url = f"{url}/webhooks/slack", f"{url}/webhooks/twilio"
    visitors = Visitors(lambda: url, people.seed)
    answers = Answers(people, telegram, slack, twilio)
    async with served(directory, port, env) as first:
        living = asyncio.gather(people.live(STEP_SECONDS), visitors.live(STEP_SECONDS))
        watching = asyncio.create_task(answers.watch())
        await asyncio.sleep(STEP_SECONDS / LOOKS / 2)
        first.signal(signal.SIGKILL)
    async with served(directory, port, env) as process:
        settled = time.monotonic() + SETTLES_SECONDS
        for _ in range(LOOKS - 1):
            await asyncio.sleep(STEP_SECONDS / LOOKS)
            looks.append({"memory": memory(process), **await kept.look()})
        await living
        missing = await unanswered(people, lambda: texts(telegram, slack, twilio))
        undone = await not_done(people, Record(record))
        watching.cancel()
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    said = texts(telegram, slack, twilio).replace("\\", "")
    assert missing == []
    assert "Traceback" not in process.said
    begun = [line["effect"] for line in Record(record).lines("before") if line["effect"].startswith("pay ")]
    assert sorted(set(begun)) == sorted(begun), "none is done twice"
    assert all(re.search(rf"may or may not have happened.*{name}(?!\d)", said) for name in undone), undone
    took = answers.seconds_since(settled)
    figures = {
        "said": len(people.said),
        "rude": people.rude,
        "confirmed": len(people.confirmed),
        "page": {f"{path} {status}": times for (path, status), times in sorted(visitors.answers.items())},
        "streamed_bytes": visitors.streamed_bytes,
        "stalls": process.said.count("stood still"),
        "looks": looks,
        "answered_seconds": {f"p{each}": took[len(took) * each // 100] for each in (50, 90, 99)},
        "timed": len(took),
    }
    file.write_text(json.dumps([*before, figures], indent=1))
    assert took[len(took) * 99 // 100] < ANSWERED_SECONDS, figures


NAME = re.compile(r"[a-z]+\d+x\d+-\d+")


class Answers:
    """Notes the moment of the first answer to each honest message."""

    def __init__(self, people: People, telegram: FakeTelegram, slack: FakeSlack, twilio: FakeTwilio) -> None:
        self._people, self._telegram, self._slack, self._twilio = people, telegram, slack, twilio
        self._at: dict[str, float] = {}

    async def watch(self) -> None:
        """Look for new texts of the bot, twenty times a second."""
        read = [0, 0, 0]
        while True:
            said = [
                [sent.text for sent in self._telegram.sent[read[0] :]],
                [sent.shown for sent in self._slack.sent[read[1] :]],
                [sent.body for sent in self._twilio.sent[read[2] :]],
            ]
            for number, new in enumerate(said):
                read[number] += len(new)
                for name in NAME.findall("\n".join(new).replace("\\", "")):
                    self._at.setdefault(name, time.monotonic())
            await asyncio.sleep(0.05)

    def seconds_since(self, begin: float) -> list[float]:
        """Return the seconds to each answer, for messages after `begin`, the shortest first."""
        said = {words.partition(" ")[2]: at for words, at in self._people.said.items() if at > begin}
        return sorted(self._at[name] - at for name, at in said.items() if name in self._at)


KINDS = ["message", "edited_message", "callback_query", "message_reaction"]


def texts(telegram: FakeTelegram, slack: FakeSlack, twilio: FakeTwilio) -> str:
    """Return all texts of the bot."""
    said = [sent.text for sent in telegram.sent] + [sent.shown for sent in slack.sent] + [s.body for s in twilio.sent]
    return "\n".join(said)


async def unanswered(people: People, said: Callable[[], str]) -> list[str]:
    """Return the honest messages without an answer, a minute after the last."""
    ends, missing = time.monotonic() + QUIET_SECONDS, list(people.said)
    while missing and time.monotonic() < ends:
        names = set(NAME.findall(said().replace("\\", "")))
        missing = [words for words in missing if words.partition(" ")[2] not in names]
        await asyncio.sleep(0.5)
    return missing


async def not_done(people: People, record: Record) -> set[str]:
    """Return the confirmed actions that are not done, a minute after the last confirmation."""
    ends = time.monotonic() + QUIET_SECONDS
    while True:
        done = {line["effect"].removeprefix("pay ") for line in record.lines("after")}
        if not (left := people.confirmed - done) or time.monotonic() > ends:
            return left
        await asyncio.sleep(0.5)
