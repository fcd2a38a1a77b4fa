"""The transport of the vendor's library to the REST API: the process's one HTTP session."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final
from urllib.parse import urlencode

import aiohttp
from aiohttp import hdrs
from twilio.http import AsyncHttpClient
from twilio.http.response import Response
from yarl import URL

from channels.channel import Ambiguous, Unavailable
from channels.limited_read import read_bounded
from channels.twilio.errors import refusal

__all__ = ["API_URL", "Login", "SessionClient", "at"]

API_URL = "https://api.twilio.com"

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials of the API: the account's sid and token, or an API key and its secret."""

    user: str
    password: str
    setting: str
    """The setting that holds the password."""

    @property
    def header(self) -> dict[str, str]:
        return {hdrs.AUTHORIZATION: aiohttp.encode_basic_auth(self.user, self.password)}


@final
class SessionClient(AsyncHttpClient):  # type: ignore[misc]  # the library has no types
    """Transport of the library over an aiohttp session.

    It makes each call once and with a time limit. The library's own transport has no time limit, and its retries send a
    message twice. It logs no requests, because the library's log lines hold numbers and addresses.
    """

    def __init__(
        self, http: aiohttp.ClientSession, api_url: str, login: Login, *, longest_answer: int = _LONGEST_ANSWER
    ) -> None:
        """`longest_answer`: in bytes."""
        super().__init__(_log, is_async=True)
        self._longest_answer = longest_answer
        self._http, self._api_url, self._login = http, api_url, login

    async def request(
        self,
        method: str,
        uri: str,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float | None = None,
        allow_redirects: bool = False,
    ) -> Response:
        """Make one HTTP call. Raises SendError for any answer but a success."""
        try:
            async with self._http.request(
                method,
                at(self._api_url, uri),
                params=params,
                data=urlencode(data, doseq=True).encode() if data else None,
                headers={**(headers or {}), **self._login.header},
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
                allow_redirects=False,
            ) as response:
                payload = await read_bounded(response, self._longest_answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Unavailable("no_connection") from None
        except (aiohttp.ClientError, OSError):
            raise Ambiguous("no_answer") from None
        if payload is None:
            raise Ambiguous("answer_too_large")
        text = payload.decode("utf-8", "replace")
        if not 200 <= response.status < 300:
            raise refusal(response.status, response.headers, text, self._login.setting)
        if not _is_documented(text):
            raise Ambiguous("unreadable_answer")
        return Response(response.status, text, response.headers)


def at(api_url: str, url: str) -> URL:
    """Return the URL to call for a URL of Twilio: a configured `api_url` replaces all of Twilio's hosts."""
    asked = URL(url, encoded=True)
    if api_url == API_URL or not (asked.host or "").endswith(".twilio.com"):
        return asked
    return URL(api_url + asked.raw_path_qs, encoded=True)


def _is_documented(text: str) -> bool:
    """True if an answer is an object with lists of objects and with dates as text, as all of Twilio's are.

    The library relies on that: https://www.twilio.com/docs/usage/twilios-response.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(answer, dict):
        return False
    listed = [one for value in answer.values() if isinstance(value, list) for one in value]
    return all(isinstance(one, dict) for one in listed) and all(
        isinstance(value, str | None)
        for one in (answer, *listed)
        for name, value in one.items()
        if name.startswith("date_")
    )
