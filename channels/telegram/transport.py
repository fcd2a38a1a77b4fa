"""The way of the vendor's library to the Bot API: over the process's one HTTP session."""

from __future__ import annotations

import json
import logging
from typing import Any, final

import aiohttp
from telegram.error import TelegramError
from telegram.request import BaseRequest, RequestData

from channels.limited_read import read_bounded
from channels.telegram.errors import Flooded, NoAnswer, NotTaken, Refused
from channels.upload import Upload

__all__ = ["SessionRequest"]

# At DEBUG the library writes every message's text.
logging.getLogger("telegram").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_UPLOAD_SECONDS = 120.0
_LONGEST_ANSWER = 16 * 2**20
"""Bytes. A hundred updates, the most that one answer holds, are well below."""
_KNOWN_TO_THE_LIBRARY = (400, 401, 403, 404, 409)
_FLOOD_SECONDS = 5.0
"""The wait after a 429 that names none."""


@final
class SessionRequest(BaseRequest):
    """One aiohttp session as python-telegram-bot's transport.

    The library is given no token: it is put into the URL here, and no error or log line of either library has it.
    """

    __slots__ = ("_http", "_root")

    def __init__(self, http: aiohttp.ClientSession, root: str) -> None:
        """`root` is the Bot API's URL with the token; a request's URL is what follows it."""
        self._http, self._root = http, root

    @property
    def read_timeout(self) -> float | None:
        return _ANSWER_SECONDS

    async def initialize(self) -> None:
        """The session is the process's: there is nothing to open."""

    async def shutdown(self) -> None:
        """The session is the process's: there is nothing to close."""

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
        """One HTTP call. Raises NotTaken, NoAnswer, Flooded or Refused."""
        seconds = _UPLOAD_SECONDS if request_data and request_data.contains_files else _ANSWER_SECONDS
        if isinstance(read_timeout, int | float):
            seconds = read_timeout
        timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT_SECONDS)
        body = {} if request_data is None else _body(request_data)
        try:
            async with self._http.request(
                method, self._root + url, timeout=timeout, allow_redirects=False, **body
            ) as response:
                status, payload = response.status, await read_bounded(response, _LONGEST_ANSWER)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise NotTaken("no_connection") from None
        except (aiohttp.ClientError, OSError):
            raise NoAnswer("no_answer") from None
        if payload is None:
            raise NoAnswer("answer_too_large")
        if status >= 500 or 300 <= status < 400:
            raise NotTaken(f"http_{status}")
        if status == 429:
            raise Flooded(_wait(payload))
        if status == 413:
            raise Refused("too_large")
        if status >= 400 and not _is_telegrams(payload):
            raise NotTaken(f"http_{status}")
        if status >= 400 and status not in _KNOWN_TO_THE_LIBRARY:
            raise Refused(f"http_{status}")
        return status, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Like the library's, without a log line that quotes the answer. Raises TelegramError."""
        try:
            answer = json.loads(payload)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("parameters", {}), dict):
            raise TelegramError("unreadable answer")
        return answer


def _body(data: RequestData) -> dict[str, Any]:
    """The arguments as JSON, with a file as a form (https://core.telegram.org/bots/api#making-requests)."""
    if not data.contains_files:
        return {"json": data.parameters}
    # Telegram shows a file's name as it is written: percent-encoding would be seen.
    form = aiohttp.FormData(quote_fields=False)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, mime_type) in data.multipart_data.items():
        file = content if isinstance(content, bytes) else Upload(content, content_type=mime_type)
        form.add_field(name, file, filename=filename, content_type=mime_type)
    return {"data": form}


def _is_telegrams(payload: bytes) -> bool:
    """Whether a refusal is the Bot API's own, and no page of a proxy's or a firewall's.

    https://core.telegram.org/bots/api#making-requests
    """
    try:
        answer = SessionRequest.parse_json_payload(payload)
    except TelegramError:
        return False
    return answer.get("ok") is False and isinstance(answer.get("description"), str)


def _wait(payload: bytes) -> float:
    """Seconds. https://core.telegram.org/bots/api#responseparameters"""
    try:
        seconds = SessionRequest.parse_json_payload(payload)["parameters"]["retry_after"]
    except (TelegramError, LookupError):
        return _FLOOD_SECONDS
    return float(seconds) if isinstance(seconds, int) else _FLOOD_SECONDS
