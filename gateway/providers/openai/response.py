"""The conversion of a Chat Completions answer, whole or in chunks, to a Response.

Shapes: https://platform.openai.com/docs/api-reference/chat/object and /chat/streaming. Known deviations of compatible
servers are accepted where the meaning is clear. A comment beside each names the place where it was observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel

from channels import Json
from gateway.providers.base import ProviderError, Response, ToolCall, Usage
from gateway.providers.calling import tool_call
from gateway.providers.prices import priced

__all__ = ["OpenAIAnswer"]


class _Function(BaseModel):
    name: str | None = None
    arguments: str | None = None


class _CallPart(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Said(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPart] | None = None


class _Choice(BaseModel):
    message: _Said | None = None
    delta: _Said | None = None
    finish_reason: str | None = None


class _PromptDetails(BaseModel):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(BaseModel):
    reasoning_tokens: int | None = None


class _TokenCounts(BaseModel):
    """Token counts. `prompt_tokens` includes the tokens that are read from or written to a cache."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None

    def usage(self) -> Usage:
        prompt, completion = self.prompt_tokens or 0, self.completion_tokens or 0
        cache, said = self.prompt_tokens_details or _PromptDetails(), self.completion_tokens_details
        reasoning = (said and said.reasoning_tokens) or 0
        # xAI counts the reasoning apart from the completion: https://docs.x.ai/developers/rate-limits
        if reasoning and self.total_tokens == prompt + completion + reasoning:
            completion += reasoning
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_prompt_tokens=cache.cached_tokens or 0,
            cache_write_tokens=cache.cache_write_tokens or 0,
        )


class _Chunk(BaseModel):
    """The used fields of a chat completion or chunk, validated here because the library passes answers on unchecked."""

    id: str | None = None
    model: str | None = None
    choices: list[_Choice]
    usage: _TokenCounts | None = None
    service_tier: str | None = None


@dataclass(slots=True)
class _Call:
    call_id: str | None = None
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class OpenAIAnswer:
    """The part of an answer that has arrived so far."""

    answer_id: str = "call"
    model: str = ""
    text: str = ""
    refusal: str = ""
    reasoning: str | None = None
    finish: str | None = None
    service_tier: str | None = None
    usage: Usage = field(default_factory=Usage)
    calls: list[_Call] = field(default_factory=list)
    open_calls: dict[int, _Call] = field(default_factory=dict)

    def add(self, answered: object) -> str:
        """Add a chunk, or the whole answer, and return its piece of the text. Raises pydantic.ValidationError."""
        chunk = _Chunk.model_validate(answered, from_attributes=True)
        self.answer_id = chunk.id or self.answer_id
        self.model = chunk.model or self.model
        self.service_tier = chunk.service_tier or self.service_tier
        if chunk.usage:
            self.usage = chunk.usage.usage()
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        said = choice.message or choice.delta or _Said()
        self.finish = choice.finish_reason or self.finish
        for part in said.tool_calls or ():
            self._add_call(part)
        self.text += said.content or ""
        self.refusal += said.refusal or ""
        if said.reasoning_content is not None:
            self.reasoning = (self.reasoning or "") + said.reasoning_content
        return said.content or ""

    def _add_call(self, part: _CallPart) -> None:
        call = None if part.index is None else self.open_calls.get(part.index)
        # Some compatible servers give every call of a reply the same index:
        # https://github.com/ai-dynamo/dynamo/pull/4723
        if call is None or (part.id and call.call_id and part.id != call.call_id):
            call = _Call()
            self.calls.append(call)
            if part.index is not None:
                self.open_calls[part.index] = call
        call.call_id = call.call_id or part.id
        if part.function:
            call.name += part.function.name or ""
            call.arguments += part.function.arguments or ""

    def response(self, model: str, url: str, at: float) -> Response:
        """Return the whole answer of this model, with its price at the server with this URL, at this POSIX time.

        Raises ProviderError when the answer has no end.
        """
        if self.finish is None:
            raise ProviderError("openai", "the answer broke off before its end", retryable=True)
        calls = tuple(_tool_calls(self.calls, self.answer_id))
        finish: Literal["stop", "tools", "length", "refused"] = "stop"
        if self.refusal or self.finish == "content_filter":
            finish, calls = "refused", ()
        elif self.finish == "length":
            finish = "length"
        elif calls:
            # Some compatible servers say "stop" here: https://github.com/googleapis/python-genai/issues/2868
            finish = "tools"
        thought: dict[str, Json] = {"provider": "openai", "model": model, "reasoning_content": self.reasoning}
        return Response(
            content=self.refusal or self.text,
            tool_calls=calls,
            usage=priced(replace(self.usage, model=self.model, provider="openai"), url, at, self.service_tier),
            model=self.model,
            finish=finish,
            echo=thought if calls and self.reasoning is not None else None,
        )


def _tool_calls(calls: Sequence[_Call], answer_id: str) -> Iterator[ToolCall]:
    taken: set[str] = set()
    for number, call in enumerate(calls):
        # Compatible servers leave ids out, or repeat one:
        # https://github.com/openclaw/openclaw/pull/47136
        call_id = call.call_id or f"{answer_id}_{number}"
        if call_id in taken:
            call_id = f"{call_id}_{number}"
        taken.add(call_id)
        yield tool_call(call_id, call.name, call.arguments)
