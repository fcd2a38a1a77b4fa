"""Files to and from Telegram."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import aiohttp
from telegram import InputFile

from channels.channel import Unavailable, Undeliverable
from channels.replies import OpenMedia

__all__ = ["Upload", "download"]

LARGEST_DOWNLOAD = 20_000_000
"""https://core.telegram.org/bots/api#getfile."""
_SECONDS = 120.0
_CONTROLS = re.compile(r'[\x00-\x1f\x7f"\\/]')


class Upload:
    """A file on its way up, streamed from disk. Opening and closing it may block: do both in a thread."""

    def __init__(self, media: OpenMedia) -> None:
        """Raises OSError when its bytes are gone."""
        filename = _CONTROLS.sub("_", media.filename) or "file"
        self._file = media.path.open("rb")
        self.input_file = InputFile(self._file, filename=filename, read_file_handle=False)
        self.input_file.mimetype = media.mime_type

    def close(self) -> None:
        self._file.close()


async def download(http: aiohttp.ClientSession, url: str) -> AsyncIterator[bytes]:
    """The bytes of a file. Raises Undeliverable past 20 MB and for a file that is gone, else Unavailable.

    The URL has the bot's token in it: it appears in no error.
    """
    left = LARGEST_DOWNLOAD
    try:
        async with http.get(
            url, timeout=aiohttp.ClientTimeout(total=_SECONDS, connect=10), allow_redirects=False
        ) as response:
            if response.status in (400, 403, 404, 410):
                raise Undeliverable("file_unknown")
            if response.status != 200:
                raise Unavailable(f"http_{response.status}")
            async for piece in response.content.iter_any():
                left -= len(piece)
                if left < 0:
                    raise Undeliverable("file_too_large")
                yield piece
    except (aiohttp.ClientError, OSError):
        raise Unavailable("no_connection") from None
