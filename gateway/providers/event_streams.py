"""Event streams of compatible servers, corrected before a vendor's library reads them.

The libraries end a stream with an error at an event without JSON, pass over events without a name, and find no event in
a whole answer. Reports: https://github.com/openai/openai-go/pull/651 (empty events to keep the connection) and
https://github.com/vercel/ai/issues/7541 (a whole answer to a request for a stream).
"""

from __future__ import annotations

import codecs
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

UNCOMPRESSED: Final = {"Accept-Encoding": "identity"}
"""The headers of requests for answers in a readable form: no compressed answer is corrected."""

Events = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]
"""Returns the events of a whole answer."""


def corrected(events: Events, *, names_events: bool) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return the hook of a client for each response.

    `names_events`: the library needs the name of each event. The name is the type in the data.
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
    """Yield the events with data, each in one piece and, if required, with the name in its data.

    Ids, retries and comments are left out: the libraries take such a line for an event.
    """
    held, event = _Lines(), _EventLines(names)
    async for piece in stream:
        written = b"".join(event.add(line) for line in held.add(piece))
        if written:
            yield written
    if rest := event.add(held.rest()) + event.rest():
        yield rest


class _EventLines:
    """The lines of the current event."""

    def __init__(self, names: bool) -> None:
        self._names, self._name = names, b""
        self._data: list[bytes] = []
        self._length = 0

    def add(self, line: bytes) -> bytes:
        """Add a line. Return the event ended by the line, else nothing."""
        if not line:
            return self._written()
        field, _, value = line.partition(b":")
        if field not in (b"event", b"data") or value.strip().lower() in _KEEP_ALIVE:
            return b""
        # Some servers leave out the empty line.
        before = self._written() if len(self._data) == 1 and self._is_whole() else b""
        if field == b"event":
            self._name = line
            return before
        self._data.append(line)
        self._length += len(line)
        if self._length > _MOST_BYTES:
            raise ValueError("an event without end")
        return before

    def rest(self) -> bytes:
        """Return the last event if only its empty line is missing. A half event is left out."""
        return self._written() if self._is_whole() else b""

    def _is_whole(self) -> bool:
        text = self._text()
        return text == b"[DONE]" or _read(text) is not None

    def _text(self) -> bytes:
        return b"\n".join(line[5:] for line in self._data).strip()

    def _written(self) -> bytes:
        name, lines, found = self._name, self._data, _type_of(self._text()) if self._names else None
        self._name, self._data, self._length = b"", [], 0
        if not lines:
            return b""
        if found:
            name = f"event: {found}".encode()
        return b"\n".join([*([name] if name else []), *lines, b"", b""])


class _Lines:
    """The lines of a stream. A piece is searched once, however long its line becomes."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._length = 0
        self._begins = True

    def add(self, piece: bytes) -> list[bytes]:
        """Add a piece, and return the lines that have ended. Raises ValueError for a line without end."""
        if self._held and self._held[-1].endswith(b"\r"):  # the rest of a line end may be in this piece
            before = self._held.pop()
            self._length -= len(before)
            piece = before + piece
        if self._begins and piece:
            self._begins, piece = False, piece.removeprefix(codecs.BOM_UTF8)
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
    for event in events(answer):
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
