"""The ways to a server: a process behind pipes, and streamable HTTP, both with bounds.

If a request may have arrived, the outcome of a failed call is unknown: `sending` observes this. The library's own
transport over pipes bounds neither a line nor the number of lines, and needs a file for stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

LARGEST = 64 * 1024 * 1024
"""The most bytes of one message, or of one HTTP answer. A server is cut off beyond this limit."""


@dataclass(slots=True)
class Sending:
    """The state of one request."""

    begun: bool = False
    """True from just before the first byte of the request leaves this process."""
    status: int | None = None
    """The status of the HTTP answer; None for none yet."""


_current: ContextVar[Sending | None] = ContextVar("askfirst_mcp_sending", default=None)


@contextmanager
def sending() -> Iterator[Sending]:
    """Observe the request sent inside the block, also by tasks with a copy of the context."""
    state = Sending()
    token = _current.set(state)
    try:
        yield state
    finally:
        _current.reset(token)


def begun() -> None:
    """Note that the request of this context begins to leave."""
    if (state := _current.get()) is not None:
        state.begun = True


def refused_with(status: int) -> None:
    """Note the status of the HTTP answer to the request of this context."""
    if (state := _current.get()) is not None:
        state.status = status


_CHUNK = 64 * 1024
_MOST_IN_A_SECOND = 5_000
"""The most lines of one second. A server beyond this limit is cut off, to keep the event loop free."""
_LONGEST_STDERR = 500
_GRACE_SECONDS = 1.0
"""The time to end by itself after the end of the input, and again after SIGTERM."""
_POLL_SECONDS = 0.01

Received = SessionMessage | Exception


class Process:
    """A transport of the `mcp` library to a new process. `on_end` is called with the reason of the connection's end."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        on_stderr: Callable[[str], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._command, self._env = command, env
        self._on_stderr, self._on_end = on_stderr, on_end
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Received], _ProcessInput]:
        """Start the process. Raises OSError and ValueError for a failed start."""
        return await self._stack.enter_async_context(self._started())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Received], _ProcessInput]]:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**get_default_environment(), **self._env},
            start_new_session=True,
            limit=_CHUNK,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise OSError("the process has no pipes")
        into, out = anyio.create_memory_object_stream[Received](0)
        tasks = [
            asyncio.create_task(self._read(process.stdout, into)),
            asyncio.create_task(self._read_stderr(process.stderr)),
        ]
        try:
            yield out, _ProcessInput(process, process.stdin)
        finally:
            out.close()
            ending = asyncio.ensure_future(_end(process, process.stdin, tasks))
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                await ending  # bounded; else the process would outlive its connection
                raise

    async def _read(self, stdout: asyncio.StreamReader, into: MemoryObjectSendStream[Received]) -> None:
        why = "its process has ended"
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with into:
                async for line in _lines(stdout):
                    if line is None:
                        why = f"it sent over {LARGEST} bytes at once, or over {_MOST_IN_A_SECOND} lines a second"
                        break
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        if line.lstrip().startswith(b"{"):
                            why = "it sent what is no message of the protocol"
                            break
                        continue  # some servers print words that belong on stderr
                    await into.send(SessionMessage(message))
        self._on_end(why)

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        left = b""
        while chunk := await stderr.read(_CHUNK):
            *lines, left = (left + chunk).split(b"\n")
            for line in lines:
                self._tell(line)
            if len(left) > _CHUNK:
                self._tell(left)
                left = b""
        self._tell(left)

    def _tell(self, line: bytes) -> None:
        if text := line.decode(errors="replace").strip():
            self._on_stderr(text if len(text) <= _LONGEST_STDERR else f"{text[:_LONGEST_STDERR]}…")


class _ProcessInput:
    """The stream of messages to the process. The sending task writes the message."""

    def __init__(self, process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter) -> None:
        self._process, self._stdin = process, stdin

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if self._process.returncode is not None or self._stdin.is_closing():
            raise anyio.BrokenResourceError
        begun()
        try:
            self._stdin.write(line)
            await self._stdin.drain()
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._stdin.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes | None]:
    """Yield the lines of a stream, and then None after a broken limit."""
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    size, count, since = 0, 0, loop.time()
    while chunk := await stream.read(_CHUNK):
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        for each in rest:
            yield b"".join(parts)
            parts, size = [each], len(each)
        count += len(rest)
        if (now := loop.time()) - since >= 1:
            count, since = 0, now
        if size > LARGEST or count > _MOST_IN_A_SECOND:
            yield None
            return


async def _end(
    process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter, tasks: list[asyncio.Task[None]]
) -> None:
    """Close the input of a process. Kill the process and its children if the process does not end by itself."""
    stdin.close()
    for deadly in (signal.SIGTERM, signal.SIGKILL):
        if await _ended(process):
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, deadly)
    await _ended(process)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]
    transport.close()  # a child that goes on may hold a pipe open


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """Return True once the process has ended, and False after the grace. `wait` would also wait for the children."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _GRACE_SECONDS
    while process.returncode is None:
        if loop.time() >= until:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


# They log addresses, which may hold a secret, and what a server has said.
logging.getLogger("httpx2").setLevel(logging.WARNING)
logging.getLogger("mcp").setLevel(logging.CRITICAL)


@contextlib.asynccontextmanager
async def http_transport(url: str, headers: Mapping[str, str], timeout_seconds: float) -> AsyncIterator[Any]:
    """Yield the streams of a connection to this URL. The first message is the first request."""
    client = await asyncio.to_thread(  # it reads the certificates of the machine
        httpx2.AsyncClient,
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(timeout_seconds, read=None),
        event_hooks={"request": [_observe], "response": [_bound]},
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams:
        yield streams


async def _observe(request: httpx2.Request) -> None:
    async def trace(event: str, _: Mapping[str, Any]) -> None:
        if event.endswith(".send_request_headers.started"):
            begun()

    request.extensions = {**request.extensions, "trace": trace}


async def _bound(response: httpx2.Response) -> None:
    refused_with(response.status_code)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("it sent compressed data, which was not asked for", request=response.request)
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = LARGEST
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"it sent more than {LARGEST} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
