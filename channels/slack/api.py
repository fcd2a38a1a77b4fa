"""The Web API as we call it: the vendor's client over our session, its errors translated."""

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
    """One app's side of the Web API, with one of its tokens."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        session = cast("aiohttp.ClientSession", LibrarySession(http))
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


def _refused(error: SlackApiError) -> Exception:
    answer = error.response
    is_slacks = isinstance(answer.data, dict) and answer.data.get("ok") is False
    code = answer.data.get("error") if is_slacks else None
    return send_error(answer.status_code, code if isinstance(code, str) else None, answer.headers.get("Retry-After"))
