"""Upload and download of files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import BinaryIO
from urllib.parse import urlsplit

import aiohttp

from channels.channel import Unavailable, Undeliverable
from channels.upload import Upload

__all__ = ["download", "is_slacks", "upload"]

LARGEST_DOWNLOAD = 20_000_000
"""In bytes. Slack's own limit, 1 GB, is larger than any file that a bot reads."""
_SECONDS = 120.0
_TIMEOUT = aiohttp.ClientTimeout(total=_SECONDS, connect=10)


def is_slacks(url: str, api_url: str) -> bool:
    """True if a URL is on a host of Slack or on the configured host of the Web API."""
    try:
        named, api = urlsplit(url), urlsplit(api_url)
        if (named.scheme, named.hostname, named.port) == (api.scheme, api.hostname, api.port):
            return True
    except ValueError:
        return False
    return named.scheme == "https" and f".{named.hostname}".endswith(".slack.com")


async def upload(http: aiohttp.ClientSession, url: str, file: BinaryIO) -> None:
    """Upload a file to the URL of files.getUploadURLExternal. It stays invisible until the upload is completed.

    Raises Unavailable.
    """
    try:
        async with http.post(url, data=Upload(file), timeout=_TIMEOUT, allow_redirects=False) as response:
            if response.status != 200:
                raise Unavailable(f"upload_{response.status}")
    except (aiohttp.ClientError, OSError):
        raise Unavailable("upload_failed") from None


async def download(http: aiohttp.ClientSession, url: str, token: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a file. Raises Undeliverable past 20 MB and for a file that cannot be read, else Unavailable.

    The token goes to this one URL, so a redirect is not followed. To a token without the right to read the file Slack
    answers with its sign-in page (https://github.com/slackapi/bolt-js/issues/2585), so an HTML answer is refused.
    """
    left = LARGEST_DOWNLOAD
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with http.get(url, headers=headers, timeout=_TIMEOUT, allow_redirects=False) as response:
            if response.status >= 500 or response.status == 429:
                raise Unavailable(f"http_{response.status}")
            if response.status != 200 or response.content_type == "text/html":
                raise Undeliverable("file_unknown")
            async for piece in response.content.iter_any():
                left -= len(piece)
                if left < 0:
                    raise Undeliverable("file_too_large")
                yield piece
    except (aiohttp.ClientError, OSError):
        raise Unavailable("no_connection") from None
