"""Event streams of compatible servers, corrected before a vendor's library reads them.

The libraries end a stream with an error at an event without JSON, pass over events without a name, and find no event in
a whole answer. Reports: https://github.com/openai/openai-go/pull/651 (empty events to keep the connection) and
https://github.com/vercel/ai/issues/7541 (a whole answer to a request for a stream).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import httpx2

_LINE: Final = re.compile(rb"\r\n|\n|\r(?=[^\n])")
_KEEP_ALIVE: Final = frozenset({b"", b"ping", b"pong", b"keepalive", b"keep-alive", b"heartbeat"})
_STREAMS: Final = re.compile(rb'"stream"\s*:\s*true')
_MOST_BYTES: Final = 8_000_000
"""The most bytes of an event, and of a whole answer."""

Events = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]
"""Returns the events of a whole answer."""


def corrected(events: Events, *, names_events: bool) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return the hook of a client for each response.

    `names_events`: the library needs the name of each event, which is the type in its data.
    """

    async def correct(response: httpx2.Response) -> None:
        if response.status_code != 200 or response.headers.get("content-encoding", "identity") != "identity":
            return
        kind, stream = response.headers.get("content-type", "").lower(), response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            return
        if "event-stream" in kind:
            response.stream = _Corrected(stream, _with_names(stream, names_events))
        elif "json" in kind and _asks_for_a_stream(response.request.content):
            response.stream = _Corrected(stream, _in_events(stream, events))

    return correct


def _asks_for_a_stream(body: bytes) -> bool:
    asked = _read(body) if _STREAMS.search(body) else None
    return isinstance(asked, dict) and asked.get("stream") is True


class _Corrected(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, pieces: AsyncIterator[bytes]) -> None:
        self._stream, self._pieces = stream, pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _with_names(stream: httpx2.AsyncByteStream, names: bool) -> AsyncIterator[bytes]:
    """Yield the lines of a stream without empty data and, if required, with the names of the events."""
    held, named = _Lines(), False
    async for piece in stream:
        lines = held.add(piece)
        kept: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data.lower() in _KEEP_ALIVE:
                    continue
                if names and not named and (name := _type_of(data)):
                    kept.append(f"event: {name}".encode())
            named = bool(line) and (named or line.startswith(b"event:"))
            kept.append(line)
        if kept:
            yield b"\n".join([*kept, b""])
    if rest := held.rest():
        yield rest


class _Lines:
    """The lines of a stream. A piece is searched once, however long its line becomes."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._length = 0

    def add(self, piece: bytes) -> list[bytes]:
        """Add a piece, and return the lines that have ended. Raises ValueError for a line without end."""
        if self._held and self._held[-1].endswith(b"\r"):  # the rest of a line end may be in this piece
            piece = self._held.pop() + piece
            self._length -= len(piece)
        *lines, rest = _LINE.split(piece)
        if lines:
            lines[0] = b"".join([*self._held, lines[0]])
            self._held, self._length = [], 0
        self._held.append(rest)
        self._length += len(rest)
        if self._length > _MOST_BYTES:
            raise ValueError("an event without end")
        return lines

    def rest(self) -> bytes:
        """Return the last line, which has no end."""
        return b"".join(self._held)


async def _in_events(stream: httpx2.AsyncByteStream, events: Events) -> AsyncIterator[bytes]:
    body = bytearray()
    async for piece in stream:
        body += piece
        if len(body) > _MOST_BYTES:
            raise ValueError("an answer without end")
    answer = _read(bytes(body))
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")
    for event in [answer] if answer.get("error") else events(answer):
        yield f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _read(data: bytes) -> object:
    """Return the value of a JSON text; None for another text."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _type_of(data: bytes) -> str | None:
    event = _read(data)
    name = event.get("type") if isinstance(event, dict) else None
    return name if isinstance(name, str) and name.replace("_", "").isalnum() else None
