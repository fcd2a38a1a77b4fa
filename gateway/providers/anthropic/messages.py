"""The conversion of messages to turns of the Messages API, and of stream events to a Response.

The rules checked by the API: each tool call is answered in the very next turn, with the results before the text, and no
other result exists (https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls); an id is used
once and matches ``[a-zA-Z0-9_-]+``; no text is blank (https://github.com/anthropics/claude-code/issues/23440); the last
turn is the user's (https://platform.claude.com/docs/en/api/errors#prefill-not-supported), and so is the first. The
turns are well-formed even if the history has gaps.

A model's thoughts are sent back unchanged with the reply after the thoughts
(https://platform.claude.com/docs/en/build-with-claude/thinking#preserving-thinking-blocks), and only if all earlier
messages are unchanged. Otherwise newer models refuse the thoughts, and accept the reply without thoughts
(https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks).

Shapes of the events: https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from channels import Json, Media
from gateway.providers.base import ModelMessage, Request, Response, ToolCall, Usage
from gateway.providers.calls import CallAssembler
from gateway.providers.history import (
    NO_RESULT,
    echoed,
    event_text,
    plain_text,
    results_in,
    said_text,
    shown_files,
    tool_name,
)
from gateway.providers.lenient import (
    BROKE_OFF,
    Count,
    FailedAnswer,
    Loose,
    Name,
    Reason,
    Said,
    broke_off,
    check_length,
    told_once,
)
from gateway.providers.prices import STANDARD_TERMS, priced

THOUGHTS = frozenset({"thinking", "redacted_thinking"})

_BEFORE = "(What was said before is left out.)"
_NO_TEXT = "(a message without text)"
_GO_ON = "(Go on.)"

_Blocks: TypeAlias = list[dict[str, Any]]


class Conversation:
    """The body of one call: `system`, `tools` and `turns`. Consecutive messages of one side form one turn.

    Results without a call are left out. Calls without a result get a note instead.
    """

    def __init__(self, request: Request, model: str) -> None:
        self.system = plain_text(request.system) if request.system.strip() else None
        self.tools = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in request.tools
        ]
        self.turns: list[dict[str, Any]] = []
        self._model = model
        self._ids: set[str] = set()
        self._ended = hashlib.sha256(_bytes([self.system, self.tools]))
        """A hash of the system text, the tools and all turns but the last."""
        for index, message in enumerate(request.messages):
            match message.role:
                case "event":
                    self._add("user", _text(event_text(message)))
                case "user":
                    files = [_file(*each) for each in shown_files(message, request.contents)]
                    said = _text(said_text(message, request.contents))
                    self._add("user", [*files, *said] or _text(_NO_TEXT))
                case "assistant":
                    self._add_assistant(message, results_in(request.messages[index + 1 :]))
        if self._speaker != "user":
            self._add("user", _text(_GO_ON))

    @property
    def prefix(self) -> str:
        """A hash of the whole content sent so far. A reply with thoughts is bound to this hash."""
        whole = self._ended.copy()
        whole.update(_bytes(self.turns[-1:]))
        return whole.hexdigest()

    @property
    def _speaker(self) -> str | None:
        return self.turns[-1]["role"] if self.turns else None

    def _add(self, role: Literal["user", "assistant"], blocks: _Blocks) -> None:
        if not blocks:
            return
        if role == "assistant" and not self.turns:
            self._add("user", _text(_BEFORE))
        if role == self._speaker:
            self.turns[-1]["content"].extend(blocks)
        else:
            self._ended.update(_bytes(self.turns[-1:]))
            self.turns.append({"role": role, "content": list(blocks)})

    def _add_assistant(self, message: ModelMessage, results: dict[str, list[str]]) -> None:
        """Add a reply of the model, with the results of the calls right behind the reply."""
        called: _Blocks = []
        answered: _Blocks = []
        for call in message.tool_calls:
            id_ = self._new_id(call.call_id)
            called.append(
                {"type": "tool_use", "id": id_, "name": tool_name(call.name), "input": _json(dict(call.args))}
            )
            recorded = results.get(call.call_id)
            answered.append(_result(id_, recorded.pop(0) if recorded else NO_RESULT))
        self._add("assistant", self._with_thoughts(message, [*_text(plain_text(message.content)), *called]))
        self._add("user", answered)

    def _with_thoughts(self, message: ModelMessage, said: _Blocks) -> _Blocks:
        """Return the blocks of a reply, with the thoughts if all earlier turns are unchanged.

        If the text and the calls of the reply are unchanged too, the blocks have the API's original form. If text or
        calls changed, the thoughts come first, unless the model had them after a part of the text. In all other cases,
        `said` is returned.
        """
        echo = echoed(message, "anthropic", self._model)
        if not said or echo is None or echo["prefix"] != self.prefix:
            return said
        blocks: _Blocks = _json(echo["blocks"])
        thoughts = [block for block in blocks if block["type"] in THOUGHTS]
        if blocks != echo["blocks"]:
            return said
        if _words(blocks) == _words(said) and _calls(blocks) == _calls(said):
            return blocks
        return [*thoughts, *said] if blocks[: len(thoughts)] == thoughts else said

    def _new_id(self, call_id: str) -> str:
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) or call_id in self._ids:
            call_id = next(free for n in range(len(self._ids) + 1) if (free := f"call_{n}") not in self._ids)
        self._ids.add(call_id)
        return call_id


def _text(text: str) -> _Blocks:
    return [{"type": "text", "text": text}] if text.strip() else []


def _file(file: Media, data: str) -> dict[str, Any]:
    """Return the block of a picture or a PDF.

    https://platform.claude.com/docs/en/build-with-claude/vision, with the advice to put pictures before the text, and
    https://platform.claude.com/docs/en/build-with-claude/pdf-support.
    """
    source = {"type": "base64", "media_type": file.mime_type, "data": data}
    if file.mime_type == "application/pdf":
        return {"type": "document", "source": source, "title": plain_text(file.filename)}
    return {"type": "image", "source": source}


def _words(blocks: _Blocks) -> list[str]:
    return "".join(block["text"] for block in blocks if block["type"] == "text").split()


def _calls(blocks: _Blocks) -> _Blocks:
    return [block for block in blocks if block["type"] == "tool_use"]


def _result(id_: str, content: str) -> dict[str, Any]:
    """Return a result block. A blank result has no content."""
    result = {"type": "tool_result", "tool_use_id": id_}
    return result | {"content": content} if content.strip() else result


def _json(value: Any) -> Any:
    """Return the same value, with "?" for a lone surrogate, impossible in UTF-8."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


class _Written(BaseModel):
    ephemeral_1h_input_tokens: Count = None


class _Tokens(BaseModel):
    """Token counts, and the terms of the price.

    `input_tokens` does not include the tokens read from or written to a cache.
    """

    input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None
    output_tokens: Count = None
    cache_creation: Loose[_Written] = None
    service_tier: Name = None
    speed: Name = None
    inference_geo: Name = None

    def terms(self) -> str | None:
        """Return the term with other prices than the standard prices, if any."""
        if self.cache_creation and self.cache_creation.ephemeral_1h_input_tokens:
            return "cache of an hour"
        terms = (self.service_tier, self.speed, self.inference_geo)
        return next((term for term in terms if term and term not in STANDARD_TERMS), None)


class _StartedMessage(BaseModel):
    id: Name = None
    model: Name = None
    usage: Loose[_Tokens] = None


class _Begun(BaseModel):
    type: Name = None
    arguments: Any = None
    parameters: Any = None
    id: Name = None
    name: Name = None
    input: dict[str, Any] | str | None = None
    text: Loose[str] = None
    thinking: Loose[str] = None
    signature: Loose[str] = None
    data: Loose[str] = None


class _Delta(BaseModel):
    type: Name = None
    text: Said = None
    partial_json: str | dict[str, Any] | None = None
    input: Any = None
    arguments: Any = None
    thinking: Loose[str] = None
    signature: Loose[str] = None
    stop_reason: Reason = None


class _Event(BaseModel):
    """The used fields of an event, validated here because the library passes answers on unchecked."""

    type: Name = None
    index: Count = None
    message: Loose[_StartedMessage] = None
    content_block: _Begun | None = None
    delta: _Delta | None = None
    usage: Loose[_Tokens] = None
    error: Any = None


@dataclass(slots=True)
class _Block:
    type: str
    text: str = ""
    """The text or the thinking."""
    signature: str = ""
    data: str = ""

    def as_sent(self, call: ToolCall | None) -> dict[str, Json]:
        """Return the block in the form accepted back by the API."""
        match self.type:
            case "tool_use" if call is not None:
                return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": dict(call.args)}
            case "thinking":
                return {"type": "thinking", "thinking": self.text, "signature": self.signature}
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": self.data}
            case _:
                return {"type": self.type, "text": self.text}


_ENDS = ("end_turn", "tool_use", "stop_sequence")
_CUT = ("max_tokens", "model_context_window_exceeded", "pause_turn")
"""The reasons for the end of a whole answer, and of an incomplete answer.

Source: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons.
"""


@dataclass(slots=True)
class AnthropicAnswer:
    """The received part of an answer."""

    answer_id: str = "call"
    model: str = ""
    text: str = ""
    stop_reason: str | None = None
    tokens: _Tokens = field(default_factory=_Tokens)
    blocks: list[_Block] = field(default_factory=list)
    open_blocks: dict[int | None, _Block] = field(default_factory=dict)
    calls: CallAssembler = field(default_factory=CallAssembler)
    _ends_behind: bool = False
    """True if no piece of a call came behind the reason for the end."""

    def add(self, answered: object) -> str:
        """Add an event, and return the event's piece of the text.

        Raises pydantic.ValidationError, and FailedAnswer for an error of the server in place of an event.
        """
        event = _Event.model_validate(answered, from_attributes=True)
        if event.error:
            raise FailedAnswer(event.error)
        piece = ""
        if event.message:
            self.answer_id = event.message.id or self.answer_id
            self.model = event.message.model or self.model
            self._count(event.message.usage)
        if event.type == "content_block_stop":
            self.calls.settle(event.index)
        if event.content_block:
            piece = self._begin(event.index, event.content_block)
        if event.delta:
            if event.delta.stop_reason:
                self._ends_behind = True
                if self.stop_reason is None or self.stop_reason in _ENDS:  # a good end behind a bad one mends nothing
                    self.stop_reason = event.delta.stop_reason
            piece = event.delta.text or ""
            block = self.open_blocks.get(event.index)
            self._add_arguments(event.index, block, event.delta)
            if block is not None:
                block.text += piece or event.delta.thinking or ""
                block.signature += event.delta.signature or ""
                piece = "" if block.type in THOUGHTS else piece
        self._count(event.usage)
        self.text += piece
        check_length("anthropic", self.text)
        return piece

    def _add_arguments(self, index: int | None, block: _Block | None, delta: _Delta) -> None:
        piece = delta.partial_json
        if any(each not in (None, "", {}) for each in (delta.input, delta.arguments)):
            self.calls.doubt()
        if delta.type == "input_json_delta" and piece is None:
            self.calls.lose_piece()
        if piece is None:
            return
        self._ends_behind = False
        if block is None or block.type == "tool_use":  # a server's own tools have pieces, too
            self.calls.add(index=index, arguments=piece)
        elif block.type in ("text", *THOUGHTS) and piece:  # the index of another block
            self.calls.doubt()

    def _begin(self, index: int | None, begun: _Begun) -> str:
        if begun.type == "tool_use":
            # Anthropic starts with {} and sends the arguments in pieces; other servers may send them whole here.
            self._ends_behind = False
            if not begun.input and any(each not in (None, "", {}) for each in (begun.arguments, begun.parameters)):
                self.calls.doubt()
            self.calls.add(index=index, call_id=begun.id, name=begun.name, arguments=begun.input or None, begins=True)
        block = _Block(
            begun.type or "",
            text=begun.text or begun.thinking or "",
            signature=begun.signature or "",
            data=begun.data or "",
        )
        self.blocks.append(block)
        self.open_blocks[index] = block
        return (begun.text or "") if begun.type == "text" else ""

    def _count(self, tokens: _Tokens | None) -> None:
        """Update the token counts: counts of the whole answer so far, not of one event."""
        if tokens:
            self.tokens = self.tokens.model_copy(update={name: value for name, value in tokens if value is not None})

    def response(self, model: str, prefix: str, url: str, at: float) -> Response:
        """Return the whole answer of this model, as a reply to the messages with this prefix.

        The price is the price at the server with this URL, at this POSIX time. Raises ProviderError for an answer
        without an end.
        """
        if self.stop_reason is None or BROKE_OFF.search(self.stop_reason):  # some servers leave the last event out
            raise broke_off("anthropic", as_ended=self.stop_reason is None and bool(self.blocks))
        if self.stop_reason not in (*_ENDS, *_CUT, "refusal"):
            told_once(f"anthropic: the server ends an answer of {model} with {self.stop_reason[:40]!r}, not known")
        ended, cut = self.stop_reason in _ENDS, self.stop_reason in _CUT
        calls = self.calls.calls(self.answer_id, ended=ended, cut=cut, ends_behind=self._ends_behind)
        finish: Literal["stop", "tools", "length", "refused"] = "tools" if calls else "stop"
        if self.stop_reason == "refusal":
            finish, calls = "refused", ()
        elif self.stop_reason in _CUT:
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

    def _thought_blocks(self, calls: tuple[ToolCall, ...]) -> list[Json]:
        """Return all blocks of an answer with thoughts; none if the blocks cannot be sent back unchanged.

        A blank text is left out, and a thought must not come last: the API refuses both
        (https://github.com/tailcallhq/forgecode/issues/2107).
        """
        kept = [block for block in self.blocks if block.type != "text" or block.text.strip()]
        types = [block.type for block in kept]
        if types.count("tool_use") != len(calls):
            return []
        if not {"text", "tool_use", *THOUGHTS}.issuperset(types) or not THOUGHTS.intersection(types):
            return []
        unreadable = any(call.parse_error for call in calls)
        if types[-1] in THOUGHTS or (unreadable and THOUGHTS.intersection(types[types.index("tool_use") :])):
            return []
        left = iter(calls)
        return [block.as_sent(next(left) if block.type == "tool_use" else None) for block in kept]
