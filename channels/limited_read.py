"""An answer of a platform, of which no more is kept than may be."""

from __future__ import annotations

import aiohttp

__all__ = ["read_bounded"]


async def read_bounded(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body; None when it is longer than `most` bytes, and read no further then. Raises what aiohttp raises."""
    pieces: list[bytes] = []
    async for piece in response.content.iter_any():
        most -= len(piece)
        if most < 0:
            return None
        pieces.append(piece)
    return b"".join(pieces)
