"""The Web API as we call it: the vendor's client over our session, its errors translated."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from channels.bounded import read_bounded
from channels.channel import Ambiguous, Unavailable
from channels.slack.errors import send_error

__all__ = ["WebApi"]

# At DEBUG the library writes every message's text.
logging.getLogger("slack_sdk").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 16 * 2**20
"""Bytes. The two hundred messages that are looked through at most are well below."""


class WebApi:
    """One app's side of the Web API, with one of its tokens."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        session = cast("aiohttp.ClientSession", _Session(http))
        # Without repeats: the engine does that, and has to know what may have been sent.
        self._client = AsyncWebClient(token, base_url=api_url, session=session, retry_handlers=[])

    async def call(self, method: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """One method, by Slack's name of it: the library's is the same with ``_`` for ``.``. Raises SendError."""
        answer = await self._answer(method, arguments)
        return answer.data if isinstance(answer.data, dict) else {}

    async def scopes(self) -> frozenset[str] | None:
        """What the token is allowed to; None when Slack does not say (https://docs.slack.dev/authentication/oauth).

        Raises SendError.
        """
        answer = await self._answer("auth.test", {})
        said = {name.lower(): value for name, value in answer.headers.items()}.get("x-oauth-scopes")
        return frozenset(scope.strip() for scope in said.split(",")) if said else None

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
            # An answer that is not what the method documents.
            raise Ambiguous("unreadable_answer") from None
        return answer


class _Session:
    """The process's HTTP session as the library uses one, with limits of time and size, and its answers read whole."""

    closed = False

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, proxy: str | None = None, ssl: object = None, **arguments: Any
    ) -> AsyncIterator[_Answer]:
        """One HTTP call. The session itself knows the `proxy`, and which hosts are reached without it."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        async with self._http.request(method, url, timeout=timeout, allow_redirects=False, **arguments) as response:
            payload = await read_bounded(response, _LONGEST_ANSWER)
        if payload is None:
            raise Ambiguous("answer_too_large")
        yield _Answer(response.status, response.headers, payload)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer as the library reads one."""

    status: int
    headers: Mapping[str, str]
    payload: bytes
    content_type: str = "application/json"

    async def json(self) -> dict[str, Any]:
        """What it says; nothing when it is no JSON object."""
        try:
            said = json.loads(self.payload)
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}


def _refused(error: SlackApiError) -> Exception:
    answer = error.response
    is_slacks = isinstance(answer.data, dict) and answer.data.get("ok") is False
    code = answer.data.get("error") if is_slacks else None
    return send_error(answer.status_code, code if isinstance(code, str) else None, answer.headers.get("Retry-After"))
