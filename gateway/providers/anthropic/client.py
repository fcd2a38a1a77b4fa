"""A provider for Anthropic's Messages API, also on compatible servers (``ANTHROPIC_BASE_URL``).

Source of the rules: https://platform.claude.com/docs/en/api/messages (requests),
https://platform.claude.com/docs/en/build-with-claude/streaming (events) and
https://platform.claude.com/docs/en/api/errors (errors).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import anthropic
import httpx2

from gateway.providers.answer_schema import strict_schema
from gateway.providers.anthropic.messages import AnthropicAnswer, Conversation
from gateway.providers.base import Request, Response
from gateway.providers.event_streams import UNCOMPRESSED, corrected
from gateway.providers.history import without_echoes
from gateway.providers.refusals import texts_in
from gateway.providers.thoughts import AnswerText, shown
from gateway.providers.vendor import Vendor, VendorProvider

_MAX_TOKENS = 8000
"""The default limit of a reply in tokens: the API requires a limit."""
_THINKS = re.compile(r"(^|[/:])claude-(?!\d|instant|(opus|sonnet|haiku)-4\b)")
"""The vendor's models with thinking by default, from 5 on.

The hidden thinking counts into the limit of a reply: https://platform.claude.com/docs/en/models/opus-5/migration-guide.
"""
_OF_THOUGHTS = re.compile(r"\bthinking\b|\bsignature\b")
"""A server's words in a refusal of the thoughts of another account or server."""
_ROOM_TO_THINK = 8000
"""The tokens added for the thinking of `_THINKS`, so a short limit does not end a reply before the first word."""


_CACHED: Mapping[str, str] = {"type": "ephemeral"}
"""The mark for the end of a prompt prefix in the vendor's cache, for five minutes.

Writing a token to the cache costs a quarter more than a plain input token, and reading a cached token a tenth:
https://platform.claude.com/docs/en/build-with-claude/prompt-caching.
"""
_LEAST_CACHED = 4000
"""The least length of instructions and tools to cache, in characters.

The value is about the vendor's own least, 512 to 4,096 tokens by model. A shorter prompt is not cached and costs no
more.
"""


def _details(error: anthropic.APIError) -> tuple[Sequence[object], object]:
    if not isinstance(error, anthropic.APIStatusError):
        return (), None
    message = str(error.api_message)
    said = next((code for words, code in _WITHOUT_CODE.items() if message.startswith(words)), None)
    field = re.match(r"([a-z_]+(?:\.[a-z_0-9]+){0,9}): ", message)
    return (said, error.error_code, error.type), field and field[1]


_WITHOUT_CODE = {"Your credit balance is too low": "billing_error", "prompt is too long": "context_length_exceeded"}
"""The codes for errors without a code in the API, by the first words of the text."""

_WITHOUT_SCHEMAS = re.compile(r"claude-(2|3|instant)|claude-(sonnet|opus)-4(-0|-2025\d+|$)")
"""The models without schema enforcement: https://platform.claude.com/docs/en/build-with-claude/structured-outputs."""


def _connected(**given: Any) -> anthropic.AsyncAnthropic:
    hooks = {"response": [corrected(_events, names_events=True)]}
    client = anthropic.DefaultAsyncHttpxClient(event_hooks=hooks, headers=UNCOMPRESSED)
    return anthropic.AsyncAnthropic(**given, http_client=client)


def _events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the events of a whole message, or of an error in any shape."""
    if answer.get("error") or "content" not in answer:
        yield {"type": "error", "error": answer.get("error") or answer}
        return
    yield {"type": "message_start", "message": {**answer, "content": []}}
    blocks = answer.get("content")
    for index, block in enumerate(blocks if isinstance(blocks, list) else []):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": answer.get("stop_reason")}, "usage": answer.get("usage")}


_VENDOR = Vendor(
    name="anthropic",
    url="https://api.anthropic.com",
    url_rule="is not the server alone (without /v1)",
    example="claude-sonnet-5-5",
    # The library maps the errors of its HTTP client until the answer begins, and does not map them while it streams.
    silences=(anthropic.APITimeoutError, httpx2.TimeoutException),
    breaks=(anthropic.APIConnectionError, httpx2.HTTPError),
    answers=anthropic.APIError,
    others=anthropic.AnthropicError,
    connect=_connected,
    without_schemas=_WITHOUT_SCHEMAS,
    details=_details,
)


class AnthropicProvider(VendorProvider[anthropic.AsyncAnthropic]):
    """A provider over the vendor's library, without the library's retries: the agent's loop retries.

    The temperature of a request is left out: the API has none (https://platform.claude.com/docs/en/api/versioning,
    2026-10-21).
    """

    vendor, name = _VENDOR, _VENDOR.name

    async def complete(self, request: Request) -> Response:
        """Return the reply. Raises ProviderError.

        `timeout_seconds` limits the time between any two events, the API's pings included. This method streams too,
        because the library refuses to wait for a long answer in one piece
        (https://platform.claude.com/docs/en/api/errors#long-requests).
        """
        items = [item async for item in self.stream(request)]
        return next(item for item in items if isinstance(item, Response))

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield the reply as Provider.stream does.

        `timeout_seconds` limits the time between any two events, the API's pings included.
        """
        model, answer, text = request.model or self.model, AnthropicAnswer(), AnswerText()
        with _VENDOR.errors_mapped(request, self._secret):
            try:
                sent, stream = await self._begin(request, model)
            except anthropic.BadRequestError as error:
                has_thoughts = any(message.echo for message in request.messages)
                if not has_thoughts or not _OF_THOUGHTS.search(" ".join(texts_in(error.body))):
                    raise
                sent, stream = await self._begin(without_echoes(request), model)
            async with stream as events:
                async for event in events:
                    if piece := text.add(answer.add(event)):
                        yield piece
        response = answer.response(model, sent.prefix, self._url, self._clock())
        response = shown(self.name, response, text, request, model)
        if (rest := text.rest()) and response.content.endswith(rest):
            yield rest
        yield response

    async def _begin(self, request: Request, model: str) -> tuple[Conversation, Any]:
        sent, client = Conversation(request, model), await self._connections.client()
        parameters = _parameters(request, model, sent)
        if self._whole_api:
            _cache(parameters)
        return sent, await client.messages.create(**parameters, stream=True)


def _parameters(request: Request, model: str, sent: Conversation) -> dict[str, Any]:
    limit = request.max_tokens or _MAX_TOKENS
    parameters: dict[str, Any] = {
        "model": model,
        "messages": sent.turns,
        "max_tokens": limit + (_ROOM_TO_THINK if _THINKS.search(model) else 0),
        "system": sent.system,
        "tools": sent.tools,
        "timeout": request.timeout_seconds,
    }
    if request.schema is not None:
        parameters["output_config"] = {"format": {"type": "json_schema", "schema": strict_schema(request.schema)}}
    return {name: value for name, value in parameters.items() if value}


def _cache(parameters: dict[str, Any]) -> None:
    """Mark the stable start of later calls: the tools and instructions of the bot, and a continued conversation.

    The first question of a conversation is not marked: without a second question, writing to the cache only costs more.
    """
    system, tools = parameters.get("system", ""), parameters.get("tools", [])
    if len(system) + len(json.dumps(tools)) >= _LEAST_CACHED:
        if system:
            parameters["system"] = [{"type": "text", "text": system, "cache_control": _CACHED}]
        else:
            parameters["tools"] = [*tools[:-1], {**tools[-1], "cache_control": _CACHED}]
    if any(turn["role"] == "assistant" for turn in parameters["messages"]):
        parameters["cache_control"] = _CACHED


from_environ = AnthropicProvider.from_environ
