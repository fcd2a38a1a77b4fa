"""A file's bytes on their way to a platform."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import IO, Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from channels.cancellable_threads import FILES, in_thread

__all__ = ["Upload"]

_CHUNK_BYTES: Final = 2**16


class Upload(Payload):
    """An open file as aiohttp sends it, once. Its own way reads in the loop's threads, which others may fill."""

    def __init__(self, file: IO[bytes], *, content_type: str | None = None) -> None:
        super().__init__(file, content_type=content_type)
        self._file = file

    @property
    def size(self) -> int:
        """In bytes."""
        return os.fstat(self._file.fileno()).st_size

    async def write(self, writer: AbstractStreamWriter) -> None:
        """All of it."""
        while chunk := await in_thread(partial(self._file.read, _CHUNK_BYTES), threads=FILES):
            await writer.write(chunk)

    async def close(self) -> None:
        """Once nothing reads it any more, which is not waited for."""
        with suppress(RuntimeError):  # no thread can be started: the next one does it
            FILES.submit(self._file.close)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """It is no text."""
        raise TypeError("a file is not decoded")
