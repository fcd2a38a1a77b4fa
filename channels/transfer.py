"""Bytes in transfer, piece by piece: an HTTP answer up to a limit, and files of this machine read beside the loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import IO, Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from channels.cancellable_threads import FILES, in_thread
from channels.channel import Undeliverable


async def read_bounded(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """Return the body, or None as soon as the body is longer than `most` bytes. Raises aiohttp's errors."""
    pieces: list[bytes] = []
    async for piece in response.content.iter_any():
        most -= len(piece)
        if most < 0:
            return None
        pieces.append(piece)
    return b"".join(pieces)


_PIECE_BYTES: Final = 2**18


async def read_pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file. Raises Undeliverable for a missing, irregular or unreadable file."""
    try:
        if not await in_thread(path.is_file, threads=FILES):
            raise Undeliverable("file_gone")
        file = await in_thread(partial(FileIO, path), threads=FILES)
        try:
            while piece := await in_thread(partial(file.read, _PIECE_BYTES), threads=FILES):
                yield piece
        finally:
            file.close()
    except OSError as error:
        raise Undeliverable("file_unreadable") from error


_CHUNK_BYTES: Final = 2**16


class Upload(Payload):
    """A payload of aiohttp for a single sending of an open file.

    aiohttp's own payload reads in the event loop's threads, possibly full of other calls. This class reads in `FILES`.
    """

    def __init__(self, file: IO[bytes], *, content_type: str | None = None) -> None:
        super().__init__(file, content_type=content_type)
        self._file = file

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return os.fstat(self._file.fileno()).st_size

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the whole file."""
        while chunk := await in_thread(partial(self._file.read, _CHUNK_BYTES), threads=FILES):
            await writer.write(chunk)

    async def close(self) -> None:
        """Close the file in a thread, without waiting."""
        with suppress(RuntimeError):  # no thread can be started: the job stays queued for the next one
            FILES.submit(self._file.close)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise TypeError: a file is not text."""
        raise TypeError("a file is not decoded")
