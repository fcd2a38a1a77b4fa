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
        kind, stream = response.headers.get("content-type", ""), response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            return
        if "event-stream" in kind:
            response.stream = _Corrected(stream, _with_names(stream, names_events))
        elif "json" in kind and _STREAMS.search(response.request.content):
            response.stream = _Corrected(stream, _in_events(stream, events))

    return correct


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
    rest, named = b"", False
    async for piece in stream:
        *lines, rest = _LINE.split(rest + piece)
        _check(rest)
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
    if rest:
        yield rest


async def _in_events(stream: httpx2.AsyncByteStream, events: Events) -> AsyncIterator[bytes]:
    body = b""
    async for piece in stream:
        body += piece
        _check(body)
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")
    for event in [answer] if "error" in answer else events(answer):
        yield f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _check(data: bytes) -> None:
    if len(data) > _MOST_BYTES:
        raise ValueError("an event without end")


def _type_of(data: bytes) -> str | None:
    try:
        event = json.loads(data)
    except ValueError:
        return None
    name = event.get("type") if isinstance(event, dict) else None
    return name if isinstance(name, str) and name.replace("_", "").isalnum() else None
