"""Visitors of the chat page that use the whole page: sessions, streams, long texts and files."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from tests.nasty import NASTY, nasty

__all__ = ["Visitors"]

SESSIONS, STREAMS, UPLOADERS = 50, 8, 10
TEXT_CHARACTERS, TABLE_ROWS, FILE_BYTES = 15_000, 400, 120_000
UNREACHABLE_SECONDS = 0.5


class Visitors:
    """`answers`: the number of answers by path and status. `server` returns the URL of the server."""

    def __init__(self, server: Callable[[], str], seed: str) -> None:
        self._server = server
        self._random, self._numbers = random.Random(seed), itertools.count(1)
        self._sessions: list[aiohttp.ClientSession] = []
        self.answers: Counter[tuple[str, int]] = Counter()
        self.streamed_bytes = 0

    async def live(self, seconds: float) -> None:
        """Use the page for so many seconds."""
        ends = time.monotonic() + seconds
        acts: list[tuple[Callable[[], Coroutine[Any, Any, None]], float]] = [
            (self._opens, 0.2),
            (self._writes, 0.5),
            (self._writes_a_table, 2.0),
            *[(self._uploads, 1.0)] * UPLOADERS,
        ]
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(SESSIONS):
                session = await stack.enter_async_context(self._visitor())
                await self._request(session, "GET", "/chat")
                self._sessions.append(session)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                    for act, each in acts:
                        group.create_task(self._again(act, each, ends))
                    for session in self._sessions:
                        for _ in range(STREAMS):
                            group.create_task(self._reads(session, ends))

    def _visitor(self) -> aiohttp.ClientSession:
        jar = aiohttp.CookieJar(unsafe=True)
        return aiohttp.ClientSession(cookie_jar=jar, connector=aiohttp.TCPConnector(limit=0))

    async def _again(self, act: Callable[[], Coroutine[Any, Any, None]], each: float, ends: float) -> None:
        while time.monotonic() < ends:
            try:
                await act()
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(UNREACHABLE_SECONDS)
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * each)

    async def _opens(self) -> None:
        """Open the page in a browser without a session."""
        async with self._visitor() as stranger:
            await self._request(stranger, "GET", "/chat")

    async def _writes(self) -> None:
        await self._says(nasty(self._random.choice(NASTY), TEXT_CHARACTERS))

    async def _writes_a_table(self) -> None:
        await self._says("| a | b | c |\n|-|-|-|\n" + "| **1** | `2` | [3](https://a.example) |\n" * TABLE_ROWS)

    async def _says(self, text: str) -> None:
        json = {"client_id": f"message{next(self._numbers)}", "text": text.encode("utf-8", "replace").decode()}
        await self._request(self._random.choice(self._sessions), "POST", "/chat/messages", json=json)

    async def _uploads(self) -> None:
        """Upload a file without a message."""
        query = {"upload": f"upload-{next(self._numbers)}", "at": "0", "size": str(FILE_BYTES), "name": "a.txt"}
        content = self._random.randbytes(FILE_BYTES)
        headers = {"Content-Type": "application/octet-stream"}
        session = self._random.choice(self._sessions)
        await self._request(session, "POST", "/chat/files", params=query, data=content, headers=headers)

    async def _request(self, session: aiohttp.ClientSession, method: str, path: str, **more: Any) -> None:
        server = self._server()
        headers = {"Origin": server, **more.pop("headers", {})}
        async with session.request(method, f"{server}{path}", headers=headers, **more) as answer:
            await answer.read()
            self.answers[path, answer.status] += 1

    async def _reads(self, session: aiohttp.ClientSession, ends: float) -> None:
        """Hold a stream open, and open the next at the end."""
        while time.monotonic() < ends:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.get(f"{self._server()}/chat/events", timeout=aiohttp.ClientTimeout(None)) as answer:
                    self.answers["/chat/events", answer.status] += 1
                    async for piece in answer.content.iter_any():
                        self.streamed_bytes += len(piece)
            await asyncio.sleep(UNREACHABLE_SECONDS)
