"""Files to and from Telegram."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import aiohttp
from telegram import InputFile

from channels.channel import Unavailable, Undeliverable
from channels.replies import OpenMedia

__all__ = ["download", "open_upload"]

LARGEST_DOWNLOAD = 20_000_000
"""https://core.telegram.org/bots/api#getfile."""
_SECONDS = 120.0
_CONTROLS = re.compile(r'[\x00-\x1f\x7f"\\/]')


def open_upload(media: OpenMedia) -> InputFile:
    """The file, to be streamed from disk; whoever sends it closes it. Opening may block: do it in a thread.

    Raises OSError when its bytes are gone.
    """
    filename = _CONTROLS.sub("_", media.filename) or "file"
    upload = InputFile(media.path.open("rb"), filename=filename, read_file_handle=False)
    upload.mimetype = media.mime_type
    return upload


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
