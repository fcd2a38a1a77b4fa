"""Servers for the tests of this room, closed at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import gateway.structured.json_schema  # noqa: F401 - its library reads files when it is loaded, which no event loop waits for
from gateway import MCPServer
from gateway.testing import ToolRun, run_tool
from tests.children import children, prepare
from tests.mcp.prepared import Host, hosted, run
from tests.ports import free_port

BUSY = Path(__file__).with_name("busy_server.py")
RUDE = Path(__file__).with_name("rude_server.py")


@dataclass
class Servers:
    state: Path
    host: Host
    made: list[MCPServer] = field(default_factory=list)

    def busy(self, **options: Any) -> MCPServer:
        env = {"STATE": str(self.state), **options.pop("env", {})}
        return self._kept(command=self.host.command(BUSY), env=env, **options)

    def rude(self, mode: str, **options: Any) -> MCPServer:
        env = {"STATE": str(self.state), **options.pop("env", {})}
        return self._kept(command=[sys.executable, "-S", str(RUDE), mode], env=env, **options)

    def at(self, url: str, **options: Any) -> MCPServer:
        return self._kept(url=url, **options)

    @property
    def done(self) -> list[str]:
        file = self.state / "done"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def _kept(self, **options: Any) -> MCPServer:
        self.made.append(MCPServer(**{"timeout_seconds": 10.0, **options}))
        return self.made[-1]


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    prepare()
    with hosted(tmp_path_factory.mktemp("mcp")) as host:
        yield host


@pytest.fixture
async def servers(tmp_path: Path, host: Host) -> AsyncIterator[Servers]:
    servers = Servers(tmp_path, host)
    yield servers
    await asyncio.gather(*(server.close() for server in servers.made))


async def called(server: MCPServer, name: str, **arguments: Any) -> ToolRun:
    async with asyncio.timeout(60):
        while not server.listed():  # a busy machine may not start a server within its limit
            await server.refresh()
            await asyncio.sleep(0)
    tools = {tool.name: tool for tool in server.listed()}
    return await run_tool(tools[f"{server.prefix}{name}"], arguments)


async def until(true: Callable[[], bool], *, trying: Callable[[], Awaitable[object]] | None = None) -> None:
    """Wait for an act of another process."""
    async with asyncio.timeout(90):
        while not true():
            if trying is not None:
                await trying()
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def over_http(state: Path, port: int | None = None) -> AsyncIterator[str]:
    """The busy server behind a URL, in a process killed at the end."""
    port = port or free_port()
    streams = [Connection(os.open(os.devnull, os.O_RDWR)) for _ in range(2)] + [Connection(os.dup(2))]
    job = (streams, [str(BUSY), str(port)], {"STATE": str(state)})
    process = children.Process(target=run, args=job, daemon=True)
    await asyncio.to_thread(process.start)
    for stream in streams:
        stream.close()
    try:
        async with asyncio.timeout(90):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
