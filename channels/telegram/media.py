"""Upload and download of files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import aiohttp
from telegram import InputFile

from channels.channel import Unavailable, Undeliverable
from channels.replies import OpenMedia

__all__ = ["download", "open_upload"]

LARGEST_DOWNLOAD = 20_000_000
"""In bytes. https://core.telegram.org/bots/api#getfile."""
_SECONDS = 120.0
_CONTROLS = re.compile(r'[\x00-\x1f\x7f"\\/]')


def open_upload(media: OpenMedia) -> InputFile:
    """Open a kept file for streaming from disk. The sender closes it. Opening may block: call this in a thread.

    Raises OSError when the file is gone.
    """
    filename = _CONTROLS.sub("_", media.filename) or "file"
    upload = InputFile(media.path.open("rb"), filename=filename, read_file_handle=False)
    upload.mimetype = media.mime_type
    return upload


async def download(http: aiohttp.ClientSession, url: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a file. Raises Undeliverable past 20 MB and for a file that is gone, else Unavailable.

    The URL holds the bot's token, so it appears in no error.
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
