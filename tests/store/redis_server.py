"""A Redis server as a child process."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as NotThere

__all__ = ["RedisServer"]

PROGRAM = shutil.which("redis-server") or "redis-server"


class RedisServer:
    """Started, frozen, killed and started again on what its directory holds."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self._port}"
        self._command = [PROGRAM, "--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(directory)]
        self._command += ["--appendonly", "yes", "--save", ""]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Returns when it answers."""
        self._process = await asyncio.to_thread(subprocess.Popen, self._command, stdout=subprocess.DEVNULL)
        while True:
            try:
                await self.command("PING")
                return
            except NotThere:
                assert await asyncio.to_thread(self._process.poll) is None, "redis-server has stopped"

    @contextmanager
    def running(self) -> Iterator[None]:
        """From outside of an event loop; it may not answer yet."""
        with subprocess.Popen(self._command, stdout=subprocess.DEVNULL) as process:
            yield
            process.kill()

    async def command(self, *words: str | int) -> object:
        """Raises what redis-py raises."""
        async with Redis.from_url(self.url, driver_info=None) as redis:
            answer: object = await redis.execute_command(*words)  # type: ignore[no-untyped-call]
            return answer

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
