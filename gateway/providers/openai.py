"""OpenAI's Chat Completions, and every server that speaks them (``OPENAI_BASE_URL``).

Source of the rules: https://platform.openai.com/docs/api-reference/chat (requests, chunks, finish reasons) and
https://platform.openai.com/docs/guides/error-codes (errors).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import openai
from openai.resources.chat import AsyncCompletions
from pydantic import ValidationError

from gateway.providers.base import ProviderConfigurationError, ProviderError, Request, Response, ToolSpec
from gateway.providers.calling import Connections, base_url_and_key, retry_after_seconds
from gateway.providers.openai_answer import Answer
from gateway.providers.openai_messages import chat_messages

__all__ = ["OpenAIProvider", "from_environ"]

_VENDOR_URL = "https://api.openai.com/v1"

_VENDORS_MODEL = re.compile(r"(^|[/:])(gpt-|chatgpt-|o\d)")
"""The vendor's newer models refuse `max_tokens` (https://github.com/griptape-ai/ComfyUI-Griptape/issues/312), some
compatible servers know nothing else."""
_REASONS = re.compile(r"(^|[/:])(gpt-5|o\d)")
"""The vendor's reasoning models refuse every temperature but their own (https://github.com/glebm/i18n-tasks/issues/672)
and count what they think, unseen, into the limit of a reply."""
_ROOM_TO_REASON = 8000
"""Tokens for that thinking, so that a short limit does not end a reply before its first word."""

_MENDS = {
    401: "the key in OPENAI_API_KEY was refused",
    403: "the key in OPENAI_API_KEY may not use this model",
    404: "no such model, or OPENAI_BASE_URL does not end in the API's path (such as /v1)",
}


def from_environ(model: str, environ: Mapping[str, str]) -> OpenAIProvider:
    """Make it of ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL``.

    A server that is not the vendor's own may do without a key. Raises ProviderConfigurationError.
    """
    if not model:
        raise ProviderConfigurationError("openai", "say which model, for example openai:gpt-5-mini")
    base_url, key = base_url_and_key("openai", _VENDOR_URL, environ)
    return OpenAIProvider(model, api_key=key, base_url=base_url)


class OpenAIProvider:
    """Chat Completions through the vendor's library, without its own retries: the agent's loop retries."""

    name = "openai"

    def __init__(self, model: str, *, api_key: str, base_url: str = _VENDOR_URL) -> None:
        self._model = model
        self._connections = Connections(lambda: openai.AsyncOpenAI(api_key=api_key, base_url=base_url, max_retries=0))

    async def complete(self, request: Request) -> Response:
        """Raises ProviderError. `timeout_seconds` bounds the wait for the first byte and between any two."""
        answer, completions = Answer(), await self._completions()
        with _errors_mapped():
            answer.add(await completions.create(**self._parameters(request)))
        return answer.response()

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """As Provider.stream; `timeout_seconds` bounds every silence."""
        answer, completions = Answer(), await self._completions()
        with _errors_mapped():
            chunks = await completions.create(
                **self._parameters(request), stream=True, stream_options={"include_usage": True}
            )
            async with chunks:
                async for chunk in chunks:
                    if piece := answer.add(chunk):
                        yield piece
        yield answer.response()

    async def close(self) -> None:
        """Close the connections; a call after it opens new ones."""
        await self._connections.close()

    async def _completions(self) -> AsyncCompletions:
        return (await self._connections.client()).chat.completions

    def _parameters(self, request: Request) -> dict[str, Any]:
        model = request.model or self._model
        parameters: dict[str, Any] = {"model": model, "messages": chat_messages(request.system, request.messages)}
        if request.tools:
            parameters["tools"] = [_tool(tool) for tool in request.tools]
        reasons = _REASONS.search(model) is not None
        if request.temperature is not None and not reasons:
            parameters["temperature"] = request.temperature
        if request.max_tokens is not None:
            limit = "max_completion_tokens" if _VENDORS_MODEL.search(model) else "max_tokens"
            parameters[limit] = request.max_tokens + (_ROOM_TO_REASON if reasons else 0)
        if request.timeout_seconds is not None:
            parameters["timeout"] = request.timeout_seconds
        return parameters


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


@contextmanager
def _errors_mapped() -> Iterator[None]:
    """The library's errors as ProviderError, without their texts, which may hold a key or a person's words."""
    try:
        yield
    except openai.APITimeoutError:
        raise ProviderError("openai", "no answer in time", retryable=True) from None
    except openai.APIConnectionError:
        raise ProviderError("openai", "the connection failed or broke off", retryable=True) from None
    except openai.APIStatusError as error:
        raise _of_status(error) from None
    except openai.APIError as error:
        raise ProviderError("openai", f"failed half way{_detail(error)}", retryable=True) from None
    except (openai.OpenAIError, ValidationError, json.JSONDecodeError, UnicodeDecodeError):
        raise ProviderError("openai", "the answer is not what the API answers", retryable=True) from None


def _of_status(error: openai.APIStatusError) -> ProviderError:
    status = error.status_code
    mend = f": {_MENDS[status]}" if status in _MENDS else ""
    return ProviderError(
        "openai",
        f"{status}{_detail(error)}{mend}",
        retryable=status in (408, 409, 429) or status >= 500,
        rate_limited=status == 429,
        retry_after_seconds=retry_after_seconds(error.response.headers),
    )


def _detail(error: openai.APIError) -> str:
    """The error's code and which parameter it is about, when they have a code's and a parameter's shape."""
    code = next((c for c in (error.code, error.type) if isinstance(c, str) and re.fullmatch(r"[A-Za-z_]{1,64}", c)), "")
    param = error.param if isinstance(error.param, str) and re.fullmatch(r"[a-z_.\[\]0-9]{1,80}", error.param) else ""
    return (f" {code}" if code else "") + (f" ({param})" if param else "")
