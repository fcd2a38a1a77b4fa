"""Uploading: the bytes of a file as the body of a request to a platform."""

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
    """A payload of aiohttp that sends an open file once.

    aiohttp's own payload reads in the event loop's threads, which other calls may fill. This one reads in `FILES`.
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
        """Close the file in a thread, without waiting for it."""
        with suppress(RuntimeError):  # no thread can be started: the job stays queued for the next one
            FILES.submit(self._file.close)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raises TypeError: a file is not text."""
        raise TypeError("a file is not decoded")
