"""A story for a separate process, and the story's traces: an action expires, another is confirmed.

The story always begins at the same minute. Time passes only by the story's waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import tempfile
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gateway.logs import configure_logging
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Moment
from tests.engine.bots import Invoices
from tests.engine.rig import rig

BEGINS = datetime(2038, 4, 3, 14, 50, 20, tzinfo=UTC)
"""On Lord Howe Island summer time ends ten minutes later."""
WAITS_SECONDS = 16 * 60


async def story(directory: Path) -> dict[str, Any]:
    async with rig(Invoices().bot(), directory) as chat:
        await chat.advance((BEGINS - await chat.store.now()).total_seconds())
        await chat.says("ana", "delete INV-1")
        await chat.turns()
        asked = await dump(chat.store)
        await chat.advance(WAITS_SECONDS)
        await chat.turns()
        await chat.says("ana", "delete INV-2")
        await chat.turns()
        code = chat.platform.texts()[-1].partition("**OK ")[2][:4]
        await chat.says("ana", f"ok {code}")
        await chat.worker.engine._actions.run(await chat.worker.lease("action"))
        await chat.turns()
        texts = [re.sub(r"\b(OK|NO) \w{4}\b", r"\1 code", text) for text in chat.platform.texts()]
        return {"texts": texts, "asked": asked, "ended": await dump(chat.store)}


async def dump(store: Any) -> list[str]:
    """Return the rows of the store with a time, to the minute, without the values drawn anew each time."""

    def rows(db: sqlite3.Connection, at: Moment) -> list[str]:
        tables = ("record", "log", "timer", "part", "event")
        return [f"{table} {json.dumps(row)}" for table in tables for row in db.execute(f"SELECT * FROM {table}")]

    assert isinstance(store, SqliteStore)
    found = await store._do(rows)
    drawn = r"(?=[\w-]*[\dA-Z])[\w-]{20,}|\b(?:OK|NO) \w{4}\b"
    code = r"(\bcode\\*\":\\*\")\w{4}"
    for what, instead in (
        (drawn, "drawn"),
        (code, r"\1drawn"),
        (r"(duration_ms\\*\": ?)[\d.e-]+", r"\1drawn"),
        (r"\b\d{16}\b", _minute),
        (r"(T\d\d:\d\d):\d\d(\.\d+)?", r"\1"),
    ):
        found = [re.sub(what, instead, row) for row in found]
    return sorted(found)


def _minute(found: re.Match[str]) -> str:
    return f"{datetime.fromtimestamp(int(found[0]) / 1e6, UTC):%Y-%m-%d %H:%M}"


def tell(zone: str, told: Connection) -> None:
    """Play the story in a time zone, and send the traces. `zone` is in the words of tzset(3)."""
    os.environ["TZ"] = zone
    time.tzset()
    configure_logging("ERROR")
    with tempfile.TemporaryDirectory() as directory:
        left = asyncio.run(story(Path(directory)))
    told.send({"offset": time.localtime(BEGINS.timestamp()).tm_gmtoff, **left})
