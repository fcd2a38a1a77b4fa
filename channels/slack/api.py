"""The Web API: the vendor's library over the process's HTTP session, with translated errors, and the transfer of files.

The translated refusals: https://docs.slack.dev/reference/methods/chat.postMessage#errors.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from channels.channel import (
    Ambiguous,
    MissingSetting,
    PlaceRefused,
    RateLimited,
    SendError,
    Unavailable,
    Undeliverable,
    Unreachable,
)
from channels.transfer import Upload, read_bounded


class WebApi:
    """The Web API for one token of one app."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        session = cast("aiohttp.ClientSession", LibrarySession(http))
        # Without retries: the engine retries, because it has to know which parts may have been sent.
        self._client = AsyncWebClient(token, base_url=api_url, session=session, retry_handlers=[])

    async def call(self, method: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a method by Slack's name and return the answer. Raises SendError.

        The library's methods have the same names with ``_`` in place of ``.``.
        """
        answer = await self._answer(method, arguments)
        return answer.data if isinstance(answer.data, dict) else {}

    async def scopes(self) -> frozenset[str] | None:
        """Return the scopes of the token. None when Slack names no scopes. Raises SendError.

        https://docs.slack.dev/authentication/oauth
        """
        answer = await self._answer("auth.test", {})
        scopes = {name.lower(): value for name, value in answer.headers.items()}.get("x-oauth-scopes")
        return frozenset(scope.strip() for scope in scopes.split(",")) if scopes else None

    async def _answer(self, method: str, arguments: Mapping[str, Any]) -> AsyncSlackResponse:
        try:
            answer: AsyncSlackResponse = await getattr(self._client, method.replace(".", "_"))(**arguments)
        except SlackApiError as error:
            raise _refused(error) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Unavailable("no_connection") from None
        except (aiohttp.ClientError, OSError):
            raise Ambiguous("no_answer") from None
        except (LookupError, ValueError):
            # The answer differs from the documentation of the method.
            raise Ambiguous("unreadable_answer") from None
        return answer


def _refused(error: SlackApiError) -> Exception:
    answer = error.response
    is_slacks = isinstance(answer.data, dict) and answer.data.get("ok") is False
    code = answer.data.get("error") if is_slacks else None
    return send_error(answer.status_code, code if isinstance(code, str) else None, answer.headers.get("Retry-After"))


# At DEBUG the library logs the text of each message.
logging.getLogger("slack_sdk").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 16 * 2**20
"""In bytes. An answer holds at most 200 messages (`SlackChannel.look_up`), well below this limit."""


class LibrarySession:
    """Transport of slack_sdk over an aiohttp session, with limits of time and size. Answers are read completely."""

    closed = False

    def __init__(self, http: aiohttp.ClientSession, *, longest_answer: int = _LONGEST_ANSWER) -> None:
        """`longest_answer`: in bytes."""
        self._http, self._longest_answer = http, longest_answer

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, proxy: str | None = None, ssl: object = None, **arguments: Any
    ) -> AsyncIterator[_Answer]:
        """Make one HTTP call. `proxy` is ignored: the session itself knows the proxy, and the hosts outside of it.

        Raises Ambiguous for a too large answer, and aiohttp's errors.
        """
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        async with self._http.request(method, url, timeout=timeout, allow_redirects=False, **arguments) as response:
            payload = await read_bounded(response, self._longest_answer)
        if payload is None:
            raise Ambiguous("answer_too_large")
        yield _Answer(response.status, response.headers, payload)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An HTTP answer with the interface that the library reads."""

    status: int
    headers: Mapping[str, str]
    payload: bytes
    content_type: str = "application/json"

    async def json(self) -> dict[str, Any]:
        """Return the JSON object of the body, or an empty object for any other body."""
        try:
            answer = json.loads(self.payload)
        except (ValueError, RecursionError):
            return {}
        return answer if isinstance(answer, dict) else {}


_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_NOT_TAKEN = frozenset({"service_unavailable", "team_added_to_org", "request_timeout"})
_IN_DOUBT = frozenset({"internal_error", "fatal_error"})
"""Codes after which, as Slack documents, the call may have been done in part."""
_OF_THE_TOKEN = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
_SHUT = frozenset({"channel_not_found", "not_in_channel", "is_archived", "user_not_found", "cannot_dm_bot"})
_OF_THE_THREAD = frozenset(
    """thread_locked cannot_reply_to_message thread_not_found invalid_thread_ts
    restricted_action_non_threadable_channel""".split()  # noqa: SIM905
)
_OF_THE_PLACE = "restricted_action"
"""The beginning of the codes of a place in which the app may not post."""
_CODE = re.compile(r"[a-z0-9_.:-]{1,80}")
_WAIT_SECONDS = 30.0
"""The wait after "too many requests" without a time."""


def send_error(status: int, code: object, retry_after: str | None = None) -> SendError:
    """Return the SendError for an HTTP status and the ``error`` of Slack's own answer.

    `code` is None for an answer of another server, for example a proxy. The error carries no text of a person and no
    secret.
    """
    if status == 429 or code in _LIMITED:
        return RateLimited("ratelimited", retry_after_seconds=_seconds(retry_after))
    if status >= 500 or 300 <= status < 400:
        return Unavailable(f"http_{status}")
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        if status < 300:
            return Ambiguous("unreadable_answer")
        return Undeliverable("http_413") if status == 413 else Unavailable(f"http_{status}")
    if code in _NOT_TAKEN:
        return Unavailable(code)
    if code in _OF_THE_TOKEN:
        return Unavailable("unauthorized", mend=_bad_token(code))
    if code in _SHUT:
        return Unreachable(code)
    if code in _OF_THE_THREAD or code.startswith(_OF_THE_PLACE):
        return PlaceRefused(code, thread=code in _OF_THE_THREAD)
    return Ambiguous(code) if code in _IN_DOUBT else Undeliverable(code)


def _bad_token(code: str) -> MissingSetting:
    mend = f"Slack does not take it ({code}): install the app again and copy its Bot User OAuth Token"
    return MissingSetting("SLACK_BOT_TOKEN", mend)


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After header. https://docs.slack.dev/apis/web-api/rate-limits: a whole number."""
    text = retry_after or ""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else _WAIT_SECONDS


LARGEST_DOWNLOAD = 20_000_000
"""In bytes. Slack's own limit, 1 GB, is larger than any file that a bot reads."""
_SECONDS = 120.0
_TIMEOUT = aiohttp.ClientTimeout(total=_SECONDS, connect=10)


def is_slacks(url: str, api_url: str) -> bool:
    """Return True if a URL is on a host of Slack or on the configured host of the Web API."""
    try:
        named, api = urlsplit(url), urlsplit(api_url)
        if (named.scheme, named.hostname, named.port) == (api.scheme, api.hostname, api.port):
            return True
    except ValueError:
        return False
    return named.scheme == "https" and f".{named.hostname}".endswith(".slack.com")


async def upload(http: aiohttp.ClientSession, url: str, file: BinaryIO) -> None:
    """Upload a file to the URL of files.getUploadURLExternal. The file stays invisible until the upload is completed.

    Raises Unavailable.
    """
    try:
        async with http.post(url, data=Upload(file), timeout=_TIMEOUT, allow_redirects=False) as response:
            if response.status != 200:
                raise Unavailable(f"upload_{response.status}")
    except (aiohttp.ClientError, OSError):
        raise Unavailable("upload_failed") from None


async def download(http: aiohttp.ClientSession, url: str, token: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a file. Raises Undeliverable past 20 MB and for an unreadable file, else Unavailable.

    The token goes to this URL only, so a redirect is not followed. For a token without the right to read the file Slack
    answers with a sign-in page (https://github.com/slackapi/bolt-js/issues/2585), so an HTML answer is refused.
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
