"""Reading the body of an HTTP answer up to a limit of bytes."""

from __future__ import annotations

import aiohttp

__all__ = ["read_bounded"]


async def read_bounded(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """Return the body, or None as soon as it is longer than `most` bytes. Raises aiohttp's errors."""
    pieces: list[bytes] = []
    async for piece in response.content.iter_any():
        most -= len(piece)
        if most < 0:
            return None
        pieces.append(piece)
    return b"".join(pieces)
