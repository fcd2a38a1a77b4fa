"""SIGKILL during a streamed answer: one complete answer is left, without a half one."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
import redis.asyncio

from tests.fakes.openai import Call, Say
from tests.fakes.telegram import Chat
from tests.kill.stage import Stage

pytestmark = pytest.mark.timeout(180)

BEGUN = "The report has three parts, and the fi"
WHOLE = "The report has three parts, and the first is about money."


async def recorded(stage: Stage) -> None:
    """Wait until the store has the message with the text. Messages sent before are not known to any process."""
    url = stage.env["ASKFIRST_STORE"]
    while not await (_in_redis(url) if url.startswith("redis") else _in_sqlite(url.removeprefix("sqlite:///"))):
        await asyncio.sleep(0.005)


async def _in_redis(url: str) -> bool:
    async with redis.asyncio.Redis.from_url(url) as client:
        return bool(await client.keys("*streamed/*"))


async def _in_sqlite(path: str) -> bool:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return bool(db.execute("SELECT 1 FROM record WHERE name LIKE 'streamed/%'").fetchall())


async def begun(stage: Stage, hold: asyncio.Event, *, then: Say | Call) -> Chat:
    """Ana asks in a group. The process dies with half of the answer shown, and another process is started."""
    ana, team = stage.telegram.person("Ana"), stage.telegram.group("Team")
    stage.model.script([Say(BEGUN, hold=hold, holds_after=8), then])
    await stage.telegram.person_says(team, ana, f"@{stage.telegram.bot.username} report")
    await stage.until(lambda: any(text and BEGUN.startswith(text) for text in stage.texts(team)))
    await recorded(stage)
    await stage.restart()
    return team


async def test_kill_while_streaming_leaves_one_whole_answer(stage: Stage) -> None:
    hold = asyncio.Event()
    team = await begun(stage, hold, then=Say(WHOLE))
    await stage.until(lambda: stage.texts(team) == [WHOLE])
    hold.set()
    assert len(stage.model.requests) == 2


async def test_kill_before_the_question_leaves_the_question_alone(stage: Stage) -> None:
    hold = asyncio.Event()
    team = await begun(stage, hold, then=Call("pay_invoice", {"invoice_id": "INV-1"}))
    await stage.until(lambda: len(texts := stage.texts(team)) == 1 and texts[0].startswith("Pay invoice “INV-1”?"))
    hold.set()


async def test_kill_while_ending_a_stream_leaves_one_answer(stage: Stage) -> None:
    """The answer waits in the outbox. The call that replaces the text has no answer."""
    ana, team = stage.telegram.person("Ana"), stage.telegram.group("Team")
    hold = asyncio.Event()
    stage.model.script([Say(WHOLE, hold=hold, holds_after=8)])
    await stage.telegram.person_says(team, ana, f"@{stage.telegram.bot.username} report")
    await stage.until(lambda: bool(stage.texts(team)))
    held = stage.telegram.hold("editMessageText")
    hold.set()
    await held.reached()
    await stage.kill()
    held.release()
    await stage.start()
    await stage.until(lambda: stage.texts(team) == [WHOLE])
