"""Reading a file of this machine piece by piece, beside the event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Final

from channels.cancellable_threads import FILES, in_thread
from channels.channel import Undeliverable

__all__ = ["read_pieces"]

_PIECE_BYTES: Final = 2**18


async def read_pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file. Raises Undeliverable when it is gone, no file, or cannot be read."""
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
