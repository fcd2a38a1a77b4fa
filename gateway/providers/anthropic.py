"""Anthropic's Messages API, and every server that speaks it (``ANTHROPIC_BASE_URL``).

Source of the rules: https://platform.claude.com/docs/en/api/messages (requests),
https://platform.claude.com/docs/en/build-with-claude/streaming (events) and
https://platform.claude.com/docs/en/api/errors (errors).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2

from gateway.providers.anthropic_answer import Answer
from gateway.providers.anthropic_messages import turns
from gateway.providers.base import ProviderConfigurationError, ProviderError, Request, Response, ToolSpec
from gateway.providers.calling import Connections, base_url_and_key, retry_after_seconds
from gateway.providers.history import plain_text

__all__ = ["AnthropicProvider", "from_environ"]

_VENDOR_URL = "https://api.anthropic.com"

_MAX_TOKENS = 8000
"""The API wants a limit; this one is ours where nobody gives one."""
_THINKS = re.compile(r"(^|[/:])claude-(?!\d|instant|(opus|sonnet|haiku)-4\b)")
"""The vendor's models from 5 on think unasked and count it, unseen, into the limit of a reply:
https://platform.claude.com/docs/en/models/opus-5/migration-guide."""
_ROOM_TO_THINK = 8000
"""Tokens for that thinking, so that a short limit does not end a reply before its first word."""

_MENDS = {
    401: "the key in ANTHROPIC_API_KEY was refused",
    402: "the account of ANTHROPIC_API_KEY cannot pay for this",
    403: "the key in ANTHROPIC_API_KEY may not do this",
    404: "no such model, or ANTHROPIC_BASE_URL is not the server alone (without /v1)",
}


def from_environ(model: str, environ: Mapping[str, str]) -> AnthropicProvider:
    """Make it of ``ANTHROPIC_API_KEY`` and ``ANTHROPIC_BASE_URL``.

    A server that is not the vendor's own may do without a key. Raises ProviderConfigurationError.
    """
    if not model:
        raise ProviderConfigurationError("anthropic", "say which model, for example anthropic:claude-sonnet-5-5")
    base_url, key = base_url_and_key("anthropic", _VENDOR_URL, environ)
    return AnthropicProvider(model, api_key=key, base_url=base_url)


class AnthropicProvider:
    """Messages through the vendor's library, without its own retries: the agent's loop retries.

    A request's temperature is left out: the API has none
    (https://platform.claude.com/docs/en/api/versioning, 2026-10-21).
    """

    name = "anthropic"

    def __init__(self, model: str, *, api_key: str, base_url: str = _VENDOR_URL) -> None:
        self._model = model
        self._connections = Connections(
            lambda: anthropic.AsyncAnthropic(api_key=api_key, base_url=base_url, max_retries=0)
        )

    async def complete(self, request: Request) -> Response:
        """Raises ProviderError. `timeout_seconds` bounds every silence, the API's pings included.

        A stream too: the library refuses to wait for a long answer in one piece
        (https://platform.claude.com/docs/en/api/errors#long-requests).
        """
        items = [item async for item in self.stream(request)]
        return next(item for item in items if isinstance(item, Response))

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """As Provider.stream; `timeout_seconds` bounds every silence, the API's pings included."""
        answer, client = Answer(), await self._connections.client()
        with _errors_mapped():
            async with await client.messages.create(**self._parameters(request), stream=True) as events:
                async for event in events:
                    if piece := answer.add(event):
                        yield piece
        yield answer.response()

    async def close(self) -> None:
        """Close the connections; a call after it opens new ones."""
        await self._connections.close()

    def _parameters(self, request: Request) -> dict[str, Any]:
        model = request.model or self._model
        limit = request.max_tokens or _MAX_TOKENS
        parameters: dict[str, Any] = {
            "model": model,
            "messages": turns(request.messages),
            "max_tokens": limit + (_ROOM_TO_THINK if _THINKS.search(model) else 0),
        }
        if request.system.strip():
            parameters["system"] = plain_text(request.system)
        if request.tools:
            parameters["tools"] = [_tool(tool) for tool in request.tools]
        if request.timeout_seconds is not None:
            parameters["timeout"] = request.timeout_seconds
        return parameters


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


@contextmanager
def _errors_mapped() -> Iterator[None]:
    """The library's errors as ProviderError, without their texts, which may hold a key or a person's words.

    Those of its HTTP client it maps until the answer begins, and lets through while it streams.
    """
    try:
        yield
    except (anthropic.APITimeoutError, httpx2.TimeoutException):
        raise ProviderError("anthropic", "no answer in time", retryable=True) from None
    except (anthropic.APIConnectionError, httpx2.HTTPError):
        raise ProviderError("anthropic", "the connection failed or broke off", retryable=True) from None
    except anthropic.APIStatusError as error:
        raise _of_status(error) from None
    except (anthropic.AnthropicError, ValueError):
        raise ProviderError("anthropic", "the answer is not what the API answers", retryable=True) from None


def _of_status(error: anthropic.APIStatusError) -> ProviderError:
    status = error.status_code
    if status == 200:
        return ProviderError("anthropic", f"failed half way{_detail(error)}", retryable=True)
    mend = f": {_MENDS[status]}" if status in _MENDS else ""
    return ProviderError(
        "anthropic",
        f"{status}{_detail(error)}{mend}",
        retryable=status in (408, 409, 429) or status >= 500,
        rate_limited=status == 429,
        retry_after_seconds=retry_after_seconds(error.response.headers),
    )


def _detail(error: anthropic.APIStatusError) -> str:
    """The error's code, and which field it is about, when they have a code's and a field's shape."""
    code = next((c for c in (error.error_code, error.type) if re.fullmatch(r"[a-z_]{1,64}", str(c))), "")
    field = re.match(r"([a-z_]+(?:\.[a-z_0-9]+){0,9}): ", str(error.api_message))
    return (f" {code}" if code else "") + (f" ({field[1]})" if field else "")
