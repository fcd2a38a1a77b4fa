"""Minimal storing server: the limit's handler on uvloop, with one row per message, group-committed before the answer.

No deduplication, no order, no wake-up of workers and no log. A storing gateway cannot be cheaper. With `reply` the
replies are rows too, committed before the platform is called.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import threading
from queue import SimpleQueue

import aiohttp
import redis.asyncio
from aiohttp import web

from bench.contenders.limit import HANDLERS
from bench.messages import ANSWER, PATHS
from gateway.cli.process import event_loop

Row = tuple[bytes, "asyncio.Future[None]"]


class SqliteRows:
    """Writer thread for committing all pending rows in a single transaction."""

    def __init__(self, path: str) -> None:
        self._path, self._loop = path, asyncio.get_running_loop()
        self._asked: list[Row] = []
        self._queue: SimpleQueue[list[Row]] = SimpleQueue()
        threading.Thread(target=self._live, daemon=True).start()

    def put(self, body: bytes) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = self._loop.create_future()
        if not self._asked:
            self._loop.call_soon(self._hand_over)
        self._asked.append((body, stored))
        return stored

    def _hand_over(self) -> None:
        self._queue.put(self._asked)
        self._asked = []

    def _live(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE message (seq INTEGER PRIMARY KEY, body BLOB)")
        while True:
            rows = self._queue.get()
            while not self._queue.empty():
                rows += self._queue.get()
            marks = ", ".join(["(?)"] * len(rows))
            db.execute("BEGIN IMMEDIATE")
            db.execute(f"INSERT INTO message (body) VALUES {marks}", [body for body, _ in rows])
            db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_told, rows)


class RedisRows:
    """Batching writer: a single call at a time, with all rows since the previous call."""

    def __init__(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url)
        self._asked: list[Row] = []
        self._flying: asyncio.Task[None] | None = None

    def put(self, body: bytes) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append((body, stored))
        if self._flying is None:
            self._flying = asyncio.ensure_future(self._fly())
        return stored

    async def _fly(self) -> None:
        while self._asked:
            rows, self._asked = self._asked, []
            await self._client.rpush("messages", *[body for body, _ in rows])
            _told(rows)
        self._flying = None


def _told(rows: list[Row]) -> None:
    for _, stored in rows:
        if not stored.done():
            stored.set_result(None)


def said(platform: str, body: bytes) -> tuple[str, dict[str, object]]:
    """Return the platform call for answering a message, with the body of the call."""
    message = json.loads(body)
    if platform == "telegram":
        call = f"{os.environ['TELEGRAM_API_URL']}/bot123456:bench/sendMessage"
        return call, {"chat_id": message["message"]["chat"]["id"], "text": ANSWER}
    return f"{os.environ['SLACK_API_URL']}chat.postMessage", {"channel": message["event"]["channel"], "text": ANSWER}


async def main(platform: str, port: int, *, replies: bool) -> None:
    where = os.environ["ASKFIRST_STORE"]
    rows = RedisRows(where) if where.startswith("redis:") else SqliteRows(where.removeprefix("sqlite:///"))
    checked = HANDLERS[platform]
    http = aiohttp.ClientSession()
    replying: set[asyncio.Task[None]] = set()

    async def reply(body: bytes) -> None:
        call, words = said(platform, body)
        await rows.put(json.dumps(words).encode())
        async with http.post(call, json=words) as response:
            await response.json()

    async def stored(request: web.Request) -> web.Response:
        answer = await checked(request)
        if answer.status == 200:
            body = await request.read()
            await rows.put(body)
            if replies:
                task = asyncio.create_task(reply(body))
                replying.add(task)
                task.add_done_callback(replying.discard)
        return answer

    app = web.Application()
    app.router.add_post(PATHS[platform], stored)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=event_loop) as running:
        running.run(main(sys.argv[1], int(sys.argv[2]), replies=sys.argv[3:] == ["reply"]))
