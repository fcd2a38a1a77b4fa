"""Download of files that people sent, from Twilio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import aiohttp
from yarl import URL

from channels.channel import Unavailable, Undeliverable
from channels.twilio.transport import at

__all__ = ["LARGEST_DOWNLOAD", "download"]

LARGEST_DOWNLOAD = 16 * 2**20
"""WhatsApp's limit in bytes. https://www.twilio.com/docs/whatsapp/guidance-whatsapp-media-messages"""
_SECONDS = 120.0
_MOST_REDIRECTS = 3
_REDIRECTED_TO = (".twilio.com", ".twiliocdn.com", ".amazonaws.com")
"""The hosts that the API may redirect to. Their URLs are valid for some hours and need no password."""


async def download(
    http: aiohttp.ClientSession, api_url: str, account: Mapping[str, str], url: str
) -> AsyncIterator[bytes]:
    """Yield the bytes of a file.

    Raises Undeliverable past 16 MiB, for a file that is gone, and for a URL on another host. Raises Unavailable for any
    other failure. Only the first call, which goes to the API, carries the account's header; redirects need none.
    """
    api = URL(api_url)
    try:
        place = at(api_url, url)
    except ValueError:
        raise Undeliverable("not_a_file") from None
    if not _same_host(place, api):
        raise Undeliverable("not_a_file")
    for hop in range(1 + _MOST_REDIRECTS):
        if not _allowed(place, api):
            raise Undeliverable("file_elsewhere")
        try:
            async with http.get(
                place,
                headers={} if hop else account,
                timeout=aiohttp.ClientTimeout(total=_SECONDS, connect=10),
                allow_redirects=False,
            ) as response:
                if 300 <= response.status < 400 and (location := response.headers.get("Location")):
                    place = at(api_url, str(place.join(URL(location, encoded=True))))
                    continue
                if response.status in (400, 401, 403, 404, 410):
                    raise Undeliverable("file_unknown")
                if response.status != 200:
                    raise Unavailable(f"http_{response.status}")
                left = LARGEST_DOWNLOAD
                async for piece in response.content.iter_any():
                    left -= len(piece)
                    if left < 0:
                        raise Undeliverable("file_too_large")
                    yield piece
                return
        except (aiohttp.ClientError, OSError, ValueError):
            raise Unavailable("no_connection") from None
    raise Undeliverable("file_elsewhere")


def _same_host(place: URL, api: URL) -> bool:
    return place.absolute and bool(place.host) and place.origin() == api.origin()


def _allowed(place: URL, api: URL) -> bool:
    """True if a URL may be called. A URL in a message must not reach a machine of the operator's own network."""
    if _same_host(place, api):
        return True
    return place.scheme == "https" and place.port == 443 and (place.host or "").endswith(_REDIRECTED_TO)
