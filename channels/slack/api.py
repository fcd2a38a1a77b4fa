"""The client of the Web API: the vendor's library over the process's HTTP session, with translated errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from channels.channel import Ambiguous, Unavailable
from channels.slack.errors import send_error
from channels.slack.transport import LibrarySession

__all__ = ["WebApi"]


class WebApi:
    """The Web API for one token of one app."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        session = cast("aiohttp.ClientSession", LibrarySession(http))
        # Without retries: the engine retries, because it has to know which parts may have been sent.
        self._client = AsyncWebClient(token, base_url=api_url, session=session, retry_handlers=[])

    async def call(self, method: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a method by Slack's name and return its answer. Raises SendError.

        The library's methods have the same names with ``_`` in place of ``.``.
        """
        answer = await self._answer(method, arguments)
        return answer.data if isinstance(answer.data, dict) else {}

    async def scopes(self) -> frozenset[str] | None:
        """Return the scopes of the token. None when Slack does not name them. Raises SendError.

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
