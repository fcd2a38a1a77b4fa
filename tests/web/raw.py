"""HTTP by hand: bytes out, bytes back."""

from __future__ import annotations

import asyncio


async def exchange(port: int, *sent: bytes) -> bytes:
    """Send, and read until the server closes; empty when it just closed. Raises TimeoutError after two seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(2):
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
