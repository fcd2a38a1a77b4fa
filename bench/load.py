"""Load on a server over several connections, each with the next request right after the previous answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["Answers", "drive", "listening"]


@dataclass(slots=True)
class Answers:
    """Answers of a server."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Seconds from each request to the answer."""

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def drive(port: int, requests: Sequence[bytes], connections: int) -> Answers:
    """Send every request once. Raises ConnectionError when a connection ends before an answer."""
    answers, left = Answers(), iter(requests)
    loop = asyncio.get_running_loop()
    clients = [_Client(left, answers) for _ in range(min(connections, len(requests)))]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in clients))
    return answers


async def listening(port: int, within_seconds: float = 30.0) -> None:
    """Wait until the port accepts connections. Raises TimeoutError."""
    async with asyncio.timeout(within_seconds):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


class _Client(asyncio.Protocol):
    """A connection. The parser reads only the contenders' HTTP: a length, or the end of the connection."""

    def __init__(self, left: Iterator[bytes], answers: Answers) -> None:
        self._left, self._answers = left, answers
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._left, None)
        if request is None:
            self._transport.close()
            self.done.set_result(None)
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        head = head.lower()
        _, named, length = head.partition(b"content-length:")
        if named and len(body) < int(length.partition(b"\r\n")[0]):
            return
        self._answers.seconds.append(time.perf_counter() - self._began)
        self._answers.statuses[int(head[9:12])] += 1
        self._buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the server hung up: {error!r} after {self._buffer[:200]!r}"))
