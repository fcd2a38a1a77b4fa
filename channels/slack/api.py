"""The Web API as we call it: the vendor's client over our session, its errors translated."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

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
        self._client = _Client(http, api_url, token)

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
        except (LookupError, TypeError, ValueError, AttributeError):
            # An answer that is not what the method documents.
            raise Ambiguous("unreadable_answer") from None
        return answer


class _Client(AsyncWebClient):
    """The library's calls, made here: it knows no limit of time or size, and copies each request for its repeats."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        super().__init__(token, base_url=api_url)
        self._http = http

    async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
        """One HTTP call, never repeated: the engine does that, and has to know what may have been sent."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        async with self._http.request(
            http_verb, api_url, timeout=timeout, allow_redirects=False, **req_args
        ) as response:
            payload = await read_bounded(response, _LONGEST_ANSWER)
        if payload is None:
            raise Ambiguous("answer_too_large")
        return {"data": _read(payload), "headers": response.headers, "status_code": response.status}


def _read(payload: bytes) -> Any:
    """What an answer says; nothing when it is not JSON."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _refused(error: SlackApiError) -> Exception:
    answer = error.response
    is_slacks = isinstance(answer.data, dict) and answer.data.get("ok") is False
    code = answer.data.get("error") if is_slacks else None
    return send_error(answer.status_code, code if isinstance(code, str) else None, answer.headers.get("Retry-After"))
