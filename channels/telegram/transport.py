"""The transport of the vendor's library to the Bot API: the process's one HTTP session."""

from __future__ import annotations

import json
import logging
from typing import Any, final

import aiohttp
from telegram.error import TelegramError
from telegram.request import BaseRequest, RequestData

from channels.limited_read import read_bounded
from channels.telegram.errors import NoAnswer, NotTaken, Refused, TooManyRequests
from channels.upload import Upload

__all__ = ["SessionRequest"]

# At DEBUG the library logs the text of each message.
logging.getLogger("telegram").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_UPLOAD_SECONDS = 120.0
_LONGEST_ANSWER = 16 * 2**20
"""In bytes. An answer holds at most 100 updates, which are well below this."""
_KNOWN_TO_THE_LIBRARY = (400, 401, 403, 404, 409)
_FLOOD_SECONDS = 5.0
"""The wait after a 429 that names no time."""


@final
class SessionRequest(BaseRequest):
    """Transport of python-telegram-bot over an aiohttp session.

    The library never gets the bot's token: it is put into the URL here, and no error or log line of either library
    holds it.
    """

    __slots__ = ("_http", "_longest_answer", "_root")

    def __init__(self, http: aiohttp.ClientSession, root: str, *, longest_answer: int = _LONGEST_ANSWER) -> None:
        """`root` is the Bot API's URL with the token. The URLs of requests are relative to it.

        `longest_answer`: in bytes.
        """
        self._http, self._root, self._longest_answer = http, root, longest_answer

    @property
    def read_timeout(self) -> float | None:
        return _ANSWER_SECONDS

    async def initialize(self) -> None:
        """No-op: the process owns the session."""

    async def shutdown(self) -> None:
        """No-op: the process owns the session."""

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        write_timeout: Any = BaseRequest.DEFAULT_NONE,
        connect_timeout: Any = BaseRequest.DEFAULT_NONE,
        pool_timeout: Any = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        """Make one HTTP call. Raises NotTaken, NoAnswer, TooManyRequests or Refused."""
        seconds = _UPLOAD_SECONDS if request_data and request_data.contains_files else _ANSWER_SECONDS
        if isinstance(read_timeout, int | float):
            seconds = read_timeout
        timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT_SECONDS)
        body = {} if request_data is None else _body(request_data)
        try:
            async with self._http.request(
                method, self._root + url, timeout=timeout, allow_redirects=False, **body
            ) as response:
                status, payload = response.status, await read_bounded(response, self._longest_answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise NotTaken("no_connection") from None
        except (aiohttp.ClientError, OSError):
            raise NoAnswer("no_answer") from None
        if payload is None:
            raise NoAnswer("answer_too_large")
        if status >= 500 or 300 <= status < 400:
            raise NotTaken(f"http_{status}")
        if status == 429:
            raise TooManyRequests(_wait(payload))
        if status == 413:
            raise Refused("too_large")
        if status >= 400 and not _is_telegrams(payload):
            raise NotTaken(f"http_{status}")
        if status >= 400 and status not in _KNOWN_TO_THE_LIBRARY:
            raise Refused(f"http_{status}")
        return status, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse an answer like the library does, but without logging its text. Raises TelegramError."""
        try:
            answer = json.loads(payload)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("parameters", {}), dict):
            raise TelegramError("unreadable answer")
        return answer


def _body(data: RequestData) -> dict[str, Any]:
    """Return the arguments as JSON, or as a form when a file is among them.

    https://core.telegram.org/bots/api#making-requests
    """
    if not data.contains_files:
        return {"json": data.parameters}
    # Telegram shows a file name as it is sent, so percent-encoding would be visible.
    form = aiohttp.FormData(quote_fields=False)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, mime_type) in data.multipart_data.items():
        file = content if isinstance(content, bytes) else Upload(content, content_type=mime_type)
        form.add_field(name, file, filename=filename, content_type=mime_type)
    return {"data": form}


def _is_telegrams(payload: bytes) -> bool:
    """True if a refusal comes from the Bot API itself, and not from a proxy or a firewall.

    https://core.telegram.org/bots/api#making-requests
    """
    try:
        answer = SessionRequest.parse_json_payload(payload)
    except TelegramError:
        return False
    return answer.get("ok") is False and isinstance(answer.get("description"), str)


def _wait(payload: bytes) -> float:
    """Return the seconds to wait after a 429. https://core.telegram.org/bots/api#responseparameters"""
    try:
        seconds = SessionRequest.parse_json_payload(payload)["parameters"]["retry_after"]
    except (TelegramError, LookupError):
        return _FLOOD_SECONDS
    return float(seconds) if isinstance(seconds, int) else _FLOOD_SECONDS
