"""The Web API as we call it: the vendor's client over our session, its errors translated."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from channels.channel import Ambiguous, Unavailable
from channels.slack.errors import send_error

__all__ = ["WebApi"]

# At DEBUG the library writes every message's text.
logging.getLogger("slack_sdk").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0


class WebApi:
    """One app's side of the Web API, with one of its tokens."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        # The engine repeats what failed: a client that repeats by itself would hide what may have been sent.
        self._client = _Client(token, base_url=api_url, session=http, retry_handlers=[])

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
    """The library leaves time limits to the session it is given; connecting has one of its own here."""

    async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        limited = {**req_args, "timeout": timeout, "allow_redirects": False}
        answer: dict[str, Any] = await super()._request(http_verb=http_verb, api_url=api_url, req_args=limited)
        return answer


def _refused(error: SlackApiError) -> Exception:
    """The library puts its own reading of the answer beside the error, or aiohttp's when it could not read it."""
    response = error.response
    status: int = response.status_code if hasattr(response, "status_code") else response.status
    data = getattr(response, "data", None)
    code = data.get("error") if isinstance(data, dict) else None
    return send_error(status, code, response.headers.get("Retry-After"))
