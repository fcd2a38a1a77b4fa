"""The real command in a process of its own: what it said, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

__all__ = ["Process", "askfirst", "running"]

LISTENS = re.compile(r"http://127\.0\.0\.1:\d+")
ENDS_WITHIN_SECONDS = 25.0


class Process:
    """A running command. Everything it wrote, to either stream, is in `said`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = ""
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while piece := await self._process.stdout.read(4096):
            async with self._more:
                self.said += piece.decode()
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()

    async def says(self, pattern: str, *, times: int = 1) -> re.Match[str]:
        """The so-manieth place where it said this. Raises AssertionError when it ended without."""
        async with self._more:
            while len(found := list(re.finditer(pattern, self.said))) < times:
                assert not self._process.stdout or not self._process.stdout.at_eof(), self.said
                await self._more.wait()
        return found[times - 1]

    async def url(self, *, times: int = 1) -> str:
        """Where it listens."""
        return (await self.says(LISTENS.pattern, times=times))[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(ENDS_WITHIN_SECONDS):
            code = await self._process.wait()
            await self._reading
        return code

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading
        # the transport of a child closes its pipes in the next turn of the loop
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None, stderr: int = asyncio.subprocess.STDOUT
) -> AsyncIterator[Process]:
    """``askfirst`` with these arguments, killed at the end of the block if it has not ended.

    `stderr`: a file to write that stream to, and not to `Process.said`.
    """
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        *map(str, arguments),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    process = Process(started)
    try:
        yield process
    finally:
        await process.end()


async def askfirst(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> tuple[int, str, str]:
    """Run ``askfirst`` to its end: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        *map(str, arguments),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin.encode())
    return process.returncode or 0, out.decode(), err.decode()
