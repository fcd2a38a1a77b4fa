"""The real command in a separate process: the output and the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.children import children
from tests.cli.command import run

LISTENS = re.compile(r"http://127\.0\.0\.1:\d+")
ENDS_WITHIN_SECONDS = 25.0
PATIENT = {"gateway.web.webhooks.ACCEPT_SECONDS": 15.0, "gateway.web.webhooks.INSIST_SECONDS": 0.3}
"""A child waits longer for a slow store, like the tests themselves: see `tests.conftest`."""


class Started(Protocol):
    """The common part of `asyncio.subprocess.Process` and `Fork`."""

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...
    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def send_signal(self, signal: int) -> None: ...
    def kill(self) -> None: ...
    async def wait(self) -> int: ...


class Process:
    """A running command. `said` has all output, of both streams."""

    def __init__(self, process: Started) -> None:
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
        """Wait for match number `times` of the output. Raises AssertionError if the process ends before."""
        async with self._more:
            while len(found := list(re.finditer(pattern, self.said))) < times:
                assert not self._process.stdout or not self._process.stdout.at_eof(), self.said
                await self._more.wait()
        return found[times - 1]

    async def url(self, *, times: int = 1) -> str:
        return (await self.says(LISTENS.pattern, times=times))[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def gone(self) -> None:
        """Wait for the end of the process, without a timeout."""
        await self._process.wait()

    async def ended(self) -> int:
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


class Fork:
    """A child that runs the command, with the interface of `asyncio.subprocess.Process`."""

    def __init__(self, process: BaseProcess, stdout: asyncio.StreamReader) -> None:
        self._process = process
        self.stdout = stdout

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, signal: int) -> None:
        os.kill(self.pid, signal)

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(self._process.sentinel, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        return self._process.exitcode or 0


@contextlib.asynccontextmanager
async def forked(
    *arguments: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    lease_seconds: float | None = None,
    constants: dict[str, float] | None = None,
    inside: int | None = None,
) -> AsyncIterator[Process]:
    """As `running`, but begun within milliseconds: for tests of a process's work, not of the start.

    `lease_seconds`: the length of leases, for tests that wait for a lease's end. `constants`: changed values by module
    and name. `inside`: a process with the namespaces to enter, as by ``nsenter --user --mount``.
    """
    said, theirs = children.Pipe(duplex=False)
    child = await _child(
        (theirs, theirs), arguments, cwd, env, lease_seconds=lease_seconds, constants=constants, inside=inside
    )
    process = Process(Fork(child, await _reader(said)))
    try:
        yield process
    finally:
        await process.end()
        child.close()


async def _child(
    pipes: tuple[Connection, Connection],
    arguments: Sequence[str | Path],
    cwd: Path,
    env: Mapping[str, str] | None,
    *,
    stdin: Connection | None = None,
    lease_seconds: float | None = None,
    constants: dict[str, float] | None = None,
    inside: int | None = None,
) -> BaseProcess:
    """Start a child that runs the command. The child owns the ends of the pipes from now on."""
    environ = {**os.environ, **(env or {})}
    job = (pipes, stdin, [*map(str, arguments)], cwd, environ, lease_seconds, PATIENT | (constants or {}), inside)
    child = children.Process(target=run, args=job, daemon=True)
    await asyncio.to_thread(child.start)
    for pipe in {*pipes, *([stdin] if stdin else [])}:
        pipe.close()
    return child


async def _reader(pipe: Connection) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    ours = os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0)
    pipe.close()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), ours)
    return reader


@contextlib.asynccontextmanager
async def running(
    *arguments: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stderr: int = asyncio.subprocess.STDOUT,
    module: str = "gateway",
) -> AsyncIterator[Process]:
    """Run ``askfirst`` with these arguments. The end of the block kills a process still running.

    `stderr`: a file for stderr, in place of `Process.said`. `module`: another program.
    """
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
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
    """Run ``askfirst`` to the end in a fork. Returns exit code, stdout, stderr. `stdin` fits into a pipe, 64 KiB."""
    (said, theirs), (told, too), (reads, types) = [children.Pipe(duplex=False) for _ in range(3)]
    os.write(types.fileno(), stdin.encode())
    types.close()
    child = await _child((theirs, too), arguments, cwd, env, stdin=reads)
    out, err = await asyncio.gather(*[(await _reader(pipe)).read() for pipe in (said, told)])
    code = await Fork(child, asyncio.StreamReader()).wait()
    child.close()
    return code, out.decode(), err.decode()


# ── a command in this process ──


async def command(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [str(argument) for argument in arguments], env=env)


async def told(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Any:
    result = await command(*arguments, "--json", env=env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def refusal(*arguments: str | Path, env: Mapping[str, str] | None = None, code: int = 1) -> str:
    result = await command(*arguments, env=env)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stderr


class Page:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url = http, url
        self._after = 0

    async def open(self) -> None:
        async with self._http.get(f"{self._url}/chat") as page:
            assert page.status == 200

    async def uploads(self, name: str, content: bytes) -> dict[str, Any]:
        query = {"upload": secrets.token_hex(8), "at": "0", "size": str(len(content)), "name": name}
        headers = {"Origin": self._url, "Content-Type": "application/octet-stream"}
        async with self._http.post(f"{self._url}/chat/files", params=query, data=content, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            file: dict[str, Any] = (await answer.json())["file"]
            return file

    async def says(self, text: str, *files: dict[str, Any]) -> None:
        said = {"client_id": secrets.token_hex(8), "text": text, "files": files}
        async with self._http.post(f"{self._url}/chat/messages", json=said, headers={"Origin": self._url}) as answer:
            assert answer.status == 200, await answer.text()

    async def sees(self, text: str) -> dict[str, Any]:
        """Return the next message of the bot, new or edited, with this text."""
        async with self._http.get(f"{self._url}/chat/events", params={"after": str(self._after)}) as stream:
            async for line in stream.content:
                if line.startswith(b"id: "):
                    self._after = int(line[4:])
                elif line.startswith(b"data: "):
                    shown: dict[str, Any] = json.loads(line[6:])
                    if shown.get("from") == "bot" and text in shown["html"]:
                        return shown
        raise AssertionError(f"the stream ended without {text!r}")
