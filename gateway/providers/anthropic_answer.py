"""The events of a Messages stream as our Response.

Shapes: https://platform.claude.com/docs/en/build-with-claude/streaming. What the model thinks is not read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from gateway.providers.base import ProviderError, Response, ToolCall, Usage
from gateway.providers.calling import tool_call

__all__ = ["Answer"]


class _Tokens(BaseModel):
    """Of what is read from a cache or written to it, `input_tokens` knows nothing."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _Message(BaseModel):
    id: str | None = None
    model: str | None = None
    usage: _Tokens | None = None


class _Block(BaseModel):
    type: str
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    text: str | None = None


class _Delta(BaseModel):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(BaseModel):
    """What we read of an event: the library hands on unchecked what it was answered."""

    type: str
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Tokens | None = None


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """What has come of an answer so far."""

    answer_id: str = "call"
    model: str = ""
    text: str = ""
    stop_reason: str | None = None
    ended: bool = False
    tokens: dict[str, int] = field(default_factory=dict)
    calls: dict[int | None, _Call] = field(default_factory=dict)

    def add(self, answered: object) -> str:
        """Take in an event; gives its piece of the text. Raises pydantic.ValidationError."""
        event = _Event.model_validate(answered, from_attributes=True)
        piece = ""
        if event.message:
            self.answer_id = event.message.id or self.answer_id
            self.model = event.message.model or self.model
            self._count(event.message.usage)
        if event.content_block:
            piece = self._begin(event.index, event.content_block)
        if event.delta:
            piece = event.delta.text or ""
            self.stop_reason = event.delta.stop_reason or self.stop_reason
            if event.delta.partial_json and event.index in self.calls:
                self.calls[event.index].arguments += event.delta.partial_json
        self._count(event.usage)
        self.ended = self.ended or event.type == "message_stop"
        self.text += piece
        return piece

    def _begin(self, index: int | None, block: _Block) -> str:
        if block.type == "tool_use":
            # Anthropic begins with {} and sends the arguments in pieces; other servers may send them whole here.
            self.calls[index] = _Call(block.id or "", block.name or "", json.dumps(block.input) if block.input else "")
        return (block.text or "") if block.type == "text" else ""

    def _count(self, tokens: _Tokens | None) -> None:
        """The counts are those of the whole answer so far, not of one event."""
        if tokens:
            self.tokens |= tokens.model_dump(exclude_none=True)

    def response(self) -> Response:
        """Raises ProviderError when the answer has no end."""
        if not self.ended or self.stop_reason is None:
            raise ProviderError("anthropic", "the answer broke off before its end", retryable=True)
        calls = self._tool_calls()
        finish: Literal["stop", "tools", "length", "refused"] = "tools" if calls else "stop"
        if self.stop_reason == "refusal":
            finish, calls = "refused", ()
        elif self.stop_reason in ("max_tokens", "model_context_window_exceeded"):
            finish = "length"
        completion = self.tokens.get("output_tokens", 0)
        usage = Usage(prompt_tokens=sum(self.tokens.values()) - completion, completion_tokens=completion)
        return Response(content=self.text, tool_calls=calls, usage=usage, model=self.model, finish=finish)

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            tool_call(call.call_id or f"{self.answer_id}_{number}", call.name, call.arguments)
            for number, call in enumerate(self.calls.values())
        )
