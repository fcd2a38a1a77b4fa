"""The conversion of the events of a Messages stream to a Response.

Shapes: https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from channels import Json
from gateway.providers.anthropic.request import THOUGHTS
from gateway.providers.base import ProviderError, Response, ToolCall, Usage
from gateway.providers.calling import tool_call
from gateway.providers.prices import STANDARD_TERMS, priced

__all__ = ["AnthropicAnswer"]


class _Written(BaseModel):
    ephemeral_1h_input_tokens: int | None = None


class _Tokens(BaseModel):
    """Token counts, and the terms that decide their price.

    `input_tokens` does not include the tokens that are read from or written to a cache.
    """

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation: _Written | None = None
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None

    def terms(self) -> str | None:
        """Return the term that has other prices than the standard ones, if there is one."""
        if self.cache_creation and self.cache_creation.ephemeral_1h_input_tokens:
            return "cache of an hour"
        terms = (self.service_tier, self.speed, self.inference_geo)
        return next((term for term in terms if term and term not in STANDARD_TERMS), None)


class _StartedMessage(BaseModel):
    id: str | None = None
    model: str | None = None
    usage: _Tokens | None = None


class _Begun(BaseModel):
    type: str
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class _Delta(BaseModel):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Event(BaseModel):
    """The used fields of an event, validated here because the library passes answers on unchecked."""

    type: str
    index: int | None = None
    message: _StartedMessage | None = None
    content_block: _Begun | None = None
    delta: _Delta | None = None
    usage: _Tokens | None = None


@dataclass(slots=True)
class _Block:
    type: str
    call_id: str = ""
    name: str = ""
    text: str = ""
    """The text or the thinking, or the arguments of a call."""
    signature: str = ""
    data: str = ""

    def as_sent(self, call: ToolCall | None) -> dict[str, Json]:
        """Return the block in the form in which the API takes it back."""
        match self.type:
            case "tool_use" if call is not None:
                return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": dict(call.args)}
            case "thinking":
                return {"type": "thinking", "thinking": self.text, "signature": self.signature}
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": self.data}
            case _:
                return {"type": self.type, "text": self.text}


@dataclass(slots=True)
class AnthropicAnswer:
    """The part of an answer that has arrived so far."""

    answer_id: str = "call"
    model: str = ""
    text: str = ""
    stop_reason: str | None = None
    ended: bool = False
    tokens: _Tokens = field(default_factory=_Tokens)
    blocks: list[_Block] = field(default_factory=list)
    open_blocks: dict[int | None, _Block] = field(default_factory=dict)

    def add(self, answered: object) -> str:
        """Add an event, and return its piece of the text. Raises pydantic.ValidationError."""
        event = _Event.model_validate(answered, from_attributes=True)
        piece = ""
        if event.message:
            self.answer_id = event.message.id or self.answer_id
            self.model = event.message.model or self.model
            self._count(event.message.usage)
        if event.content_block:
            piece = self._begin(event.index, event.content_block)
        if event.delta:
            self.stop_reason = event.delta.stop_reason or self.stop_reason
            piece = event.delta.text or ""
            if block := self.open_blocks.get(event.index):
                block.text += piece or event.delta.partial_json or event.delta.thinking or ""
                block.signature += event.delta.signature or ""
        self._count(event.usage)
        self.ended = self.ended or event.type == "message_stop"
        self.text += piece
        return piece

    def _begin(self, index: int | None, begun: _Begun) -> str:
        # Anthropic starts with {} and sends the arguments in pieces; other servers may send them whole here.
        arguments = json.dumps(begun.input) if begun.input else ""
        block = _Block(
            begun.type,
            call_id=begun.id or "",
            name=begun.name or "",
            text=arguments or begun.text or begun.thinking or "",
            signature=begun.signature or "",
            data=begun.data or "",
        )
        self.blocks.append(block)
        self.open_blocks[index] = block
        return (begun.text or "") if begun.type == "text" else ""

    def _count(self, tokens: _Tokens | None) -> None:
        """Update the token counts, which are those of the whole answer so far, not of one event."""
        if tokens:
            self.tokens = self.tokens.model_copy(update={name: value for name, value in tokens if value is not None})

    def response(self, model: str, prefix: str, url: str, at: float) -> Response:
        """Return the whole answer of this model, as a reply to the messages with this prefix.

        It has its price at the server with this URL, at this POSIX time. Raises ProviderError when the answer has no
        end.
        """
        if not self.ended or self.stop_reason is None:
            raise ProviderError("anthropic", "the answer broke off before its end", retryable=True)
        calls = self._tool_calls()
        finish: Literal["stop", "tools", "length", "refused"] = "tools" if calls else "stop"
        if self.stop_reason == "refusal":
            finish, calls = "refused", ()
        elif self.stop_reason in ("max_tokens", "model_context_window_exceeded", "pause_turn"):
            finish = "length"
        blocks = self._thought_blocks(calls) if finish in ("stop", "tools") else []
        return Response(
            content=self.text,
            tool_calls=calls,
            usage=priced(self._usage(), url, at, self.tokens.terms()),
            model=self.model,
            finish=finish,
            echo={"provider": "anthropic", "model": model, "prefix": prefix, "blocks": blocks} if blocks else None,
        )

    def _usage(self) -> Usage:
        tokens = self.tokens
        read, written = tokens.cache_read_input_tokens or 0, tokens.cache_creation_input_tokens or 0
        return Usage(
            prompt_tokens=(tokens.input_tokens or 0) + read + written,
            completion_tokens=tokens.output_tokens or 0,
            cached_prompt_tokens=read,
            cache_write_tokens=written,
            model=self.model,
            provider="anthropic",
        )

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        called = [block for block in self.blocks if block.type == "tool_use"]
        return tuple(
            tool_call(block.call_id or f"{self.answer_id}_{number}", block.name, block.text)
            for number, block in enumerate(called)
        )

    def _thought_blocks(self, calls: tuple[ToolCall, ...]) -> list[Json]:
        """Return all blocks of an answer with thoughts; none when they cannot be sent back unchanged.

        A blank text is left out, and a thought must not come last: the API refuses both
        (https://github.com/tailcallhq/forgecode/issues/2107).
        """
        kept = [block for block in self.blocks if block.type != "text" or block.text.strip()]
        types = [block.type for block in kept]
        if not {"text", "tool_use", *THOUGHTS}.issuperset(types) or not THOUGHTS.intersection(types):
            return []
        unreadable = any(call.parse_error for call in calls)
        if types[-1] in THOUGHTS or (unreadable and THOUGHTS.intersection(types[types.index("tool_use") :])):
            return []
        left = iter(calls)
        return [block.as_sent(next(left) if block.type == "tool_use" else None) for block in kept]
