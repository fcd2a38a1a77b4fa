"""Minimal store of a question until the yes: a round trip stores the question, another removes the question.

On SQLite a thread commits all pending rows in a single transaction, on disk before the answer. There are no seals, no
index besides the token, no messages and no history.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from queue import SimpleQueue
from typing import Protocol

import redis.asyncio

__all__ = ["Stash", "open_stash"]

_Job = tuple[str, tuple[object, ...], "asyncio.Future[bytes | None]"]


class Stash(Protocol):
    async def put(self, token: str, body: bytes) -> None: ...
    async def pop(self, token: str) -> bytes | None: ...


def open_stash(url: str) -> Stash:
    """Open the stash of a store's URL. Requires a running event loop."""
    return _OnRedis(url) if url.startswith("redis:") else _OnSqlite(url.removeprefix("sqlite:///"))


class _OnSqlite:
    def __init__(self, path: str) -> None:
        self._path, self._loop = path, asyncio.get_running_loop()
        self._asked: list[_Job] = []
        self._queue: SimpleQueue[list[_Job]] = SimpleQueue()
        threading.Thread(target=self._live, daemon=True).start()

    async def put(self, token: str, body: bytes) -> None:
        await self._do("INSERT INTO stash VALUES (?, ?)", token, body)

    async def pop(self, token: str) -> bytes | None:
        return await self._do("DELETE FROM stash WHERE token = ? RETURNING body", token)

    def _do(self, statement: str, *values: object) -> asyncio.Future[bytes | None]:
        done: asyncio.Future[bytes | None] = self._loop.create_future()
        if not self._asked:
            self._loop.call_soon(self._hand_over)
        self._asked.append((statement, values, done))
        return done

    def _hand_over(self) -> None:
        self._queue.put(self._asked)
        self._asked = []

    def _live(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE stash (token TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
        while True:
            jobs = self._queue.get()
            while not self._queue.empty():
                jobs += self._queue.get()
            db.execute("BEGIN IMMEDIATE")
            found = [(done, db.execute(statement, values).fetchone()) for statement, values, done in jobs]
            db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_told, found)


def _told(found: list[tuple[asyncio.Future[bytes | None], tuple[bytes] | None]]) -> None:
    for done, row in found:
        if not done.done():
            done.set_result(row[0] if row is not None else None)


class _OnRedis:
    def __init__(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url)

    async def put(self, token: str, body: bytes) -> None:
        await self._client.set(token, body, ex=900)

    async def pop(self, token: str) -> bytes | None:
        body = await self._client.getdel(token)
        return body.encode() if isinstance(body, str) else body
