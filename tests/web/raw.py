"""HTTP by hand: bytes out, bytes back."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from typing import Self


class Client:
    """A connection. `reads=False`: the client reads next to no bytes of an answer."""

    def __init__(self, port: int, *, reads: bool = True) -> None:
        self._port, self._reads = port, reads

    async def __aenter__(self) -> Self:
        self._socket = socket.socket()
        self._socket.setblocking(False)
        if not self._reads:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", self._port))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._socket.close()

    async def send(self, sent: bytes) -> None:
        """Raises ConnectionError when the server has closed."""
        await asyncio.get_running_loop().sock_sendall(self._socket, sent)

    async def status(self) -> int:
        """Return the status of the next complete answer; 0 if the server has closed."""
        received = b""
        async with asyncio.timeout(60):
            while not _whole(received):
                if not (piece := await self.receive()):
                    return 0
                received += piece
        return status(received)

    async def rest(self) -> bytes:
        received = b""
        async with asyncio.timeout(60):
            while piece := await self.receive():
                received += piece
        return received

    async def receive(self) -> bytes:
        """Return the next bytes; empty if the server has closed."""
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        except ConnectionError:
            return b""

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def vanish(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


async def exchange(port: int, *sent: bytes) -> bytes:
    """Send, and read until the server closes; empty if closed at once. Raises TimeoutError after ten seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            for piece in sent:
                writer.write(piece)
                await writer.drain()
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


def _whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and len(body) >= int(length[1] if length else 0)
