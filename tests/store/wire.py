"""A slow or redirected connection to a Redis server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit

__all__ = ["Wire"]


class Wire:
    """Passes all bytes on, each answer `delay_seconds` late; answers on the way keep the earlier delay.

    `leads_to` another server: new connections go there, and the existing connections stay.
    """

    def __init__(self, url: str) -> None:
        self.leads_to = url
        self.delay_seconds = 0.0
        self.url = ""
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        while self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.cancel()

    async def _connected(self, asks: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        to = urlsplit(self.leads_to)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                theirs, ours = await asyncio.open_connection(to.hostname, to.port)
                try:
                    await self._pass_on(asks, ours, theirs, answers)
                finally:
                    ours.transport.abort()
        finally:
            answers.transport.abort()
            self._connections.discard(task)

    async def _pass_on(
        self,
        asks: asyncio.StreamReader,
        ours: asyncio.StreamWriter,
        theirs: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
    ) -> None:
        """Pass the bytes on until a side hangs up."""
        now = asyncio.get_running_loop().time
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def ask() -> None:
            while asked := await asks.read(65536):
                ours.write(asked)

        async def hear() -> None:
            while answer := await theirs.read(65536):
                late.put_nowait((now() + self.delay_seconds, answer))

        async def answer() -> None:
            while True:
                due, said = await late.get()
                await asyncio.sleep(due - now())
                answers.write(said)

        running = [asyncio.ensure_future(each()) for each in (ask, hear, answer)]
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in running:
                each.cancel()
            await asyncio.wait(running)
            for each in running:
                if not each.cancelled():
                    each.exception()
