"""The conversion of messages to Chat Completions messages, and of an answer, whole or in chunks, to a Response.

The rules checked by the API (https://platform.openai.com/docs/api-reference/chat/create): each tool call of an
assistant message has exactly one tool message, right after the assistant message, and no other tool message exists; ids
have at most 40 characters; names match ``[a-zA-Z0-9_-]{1,64}``, also names made up by a model. The messages are
well-formed even if the history has gaps.

OpenAI's own models do not show their reasoning, and no reasoning is sent back. The `reasoning_content` of other
servers' models is sent back with a reply with tool calls: otherwise some servers refuse the results
(https://api-docs.deepseek.com/guides/thinking_mode).

Shapes of the answer: https://platform.openai.com/docs/api-reference/chat/object and /chat/streaming. Known deviations
of compatible servers are accepted where the meaning is clear. A comment beside each names the source of the
observation.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator

from channels import Json
from gateway.providers.base import ModelMessage, Request, Response, Usage
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
from gateway.providers.openai.compat import Compat
from gateway.providers.prices import priced

_LENGTH = re.compile(
    r"(model_)?length|max_(output_)?tokens|context_length_exceeded|model_context_window_exceeded", re.IGNORECASE
)
_FILTERED = re.compile(r"content_filter|safety|sensitive|prohibited_content|blocklist|recitation|spii", re.IGNORECASE)
"""The reasons of an answer cut by a limit or ended by a filter, also of Mistral, Gemini and Zhipu."""
_ENDS = ("stop", "tool_calls", "function_call")
"""The reasons for the end of a whole answer: https://platform.openai.com/docs/api-reference/chat/object."""
_GO_ON = "(Go on.)"
_NOT_KEPT = "(not kept)"
"""The thoughts of another model, for a server requiring thoughts (https://github.com/BerriAI/litellm/issues/21672)."""
_NOTED = "Noted."
"""The model's message where a server requires one, without a claim about any action."""
_MAX_CALL_ID = 40
"""The most characters of a call's id: https://github.com/vercel/ai/issues/5171"""


def chat_messages(request: Request, model: str, compat: Compat = frozenset()) -> list[dict[str, Any]]:
    """Return the messages of one call, for a server with the rules of `compat`.

    Results without a call are left out. Calls without a result get a note instead.
    """
    chat: list[dict[str, Any]] = []
    if request.system:
        chat.append({"role": "system", "content": plain_text(request.system)})
    events: list[str] = []
    for index, message in enumerate(request.messages):
        match message.role:
            case "event":
                events.append(event_text(message))
            case "user":
                chat.append({"role": "user", "content": _said(message, events, request.contents)})
                events.clear()
            case "assistant":
                if events:
                    chat.append({"role": "user", "content": "\n\n".join(events)})
                    events.clear()
                chat.extend(_assistant(message, model, compat, results_in(request.messages[index + 1 :])))
    if events:
        chat.append({"role": "user", "content": "\n\n".join(events)})
    if "user_after_tool" in compat:
        chat = _in_turn(chat)
    return _with_short_ids(chat) if "call_ids" in compat else chat


def _in_turn(chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the person and the model in turn.

    Messages of one side become one message, and between the result of a tool and a person's message the model has a
    word.
    """
    turns: list[dict[str, Any]] = []
    for message in chat:
        before, role = turns[-1] if turns else {"role": "system"}, message["role"]
        if role == before["role"] and (role == "user" or (role == "assistant" and "tool_calls" not in before)):
            turns[-1] = {**message, "content": _joined(before["content"], message["content"])}
            continue
        if (before["role"], role) == ("system", "assistant"):
            turns.append({"role": "user", "content": _GO_ON})
        elif (before["role"], role) == ("tool", "user"):
            turns.append({"role": "assistant", "content": _NOTED})
        turns.append(message)
    if turns[-1]["role"] == "assistant":
        turns.append({"role": "user", "content": _GO_ON})
    return turns


def _joined(first: Any, second: Any) -> Any:
    """Return the contents of two messages as one: a text, or parts if one of the messages has files."""
    if isinstance(first, list) or isinstance(second, list):
        return [*_parts(first), *_parts(second)]
    return "\n\n".join(filter(None, [first, second])) or None


def _parts(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _with_short_ids(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with call ids of nine letters and digits."""
    short: dict[str, str] = {}
    for id_ in [call["id"] for message in chat for call in message.get("tool_calls", ())]:
        counted = (hashlib.sha256(f"{id_}/{number}".encode()).hexdigest()[:9] for number in itertools.count())
        short.setdefault(id_, next(name for name in counted if name not in short.values()))
    for message in chat:
        for call in message.get("tool_calls", ()):
            call["id"] = short[call["id"]]
        if "tool_call_id" in message:
            message["tool_call_id"] = short[message["tool_call_id"]]
    return chat


def _said(message: ModelMessage, events: list[str], contents: Mapping[str, bytes]) -> str | list[dict[str, Any]]:
    """Return a person's message, behind the earlier events.

    Files: https://platform.openai.com/docs/guides/images-vision and https://platform.openai.com/docs/guides/pdf-files.
    """
    text = "\n\n".join([*events, said_text(message, contents)])
    parts: list[dict[str, Any]] = []
    for file, data in shown_files(message, contents):
        url = f"data:{file.mime_type};base64,{data}"
        if file.mime_type == "application/pdf":
            parts.append({"type": "file", "file": {"filename": plain_text(file.filename), "file_data": url}})
        else:
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return [*([{"type": "text", "text": text}] if text else []), *parts] if parts else text


def _assistant(
    message: ModelMessage, model: str, compat: Compat, results: dict[str, list[str]]
) -> Iterator[dict[str, Any]]:
    content = plain_text(message.content)
    if not message.tool_calls:
        if content:
            yield {"role": "assistant", "content": content}
        return
    ids: list[str] = []
    for number, call in enumerate(message.tool_calls):
        fits = call.call_id and len(call.call_id) <= _MAX_CALL_ID and plain_text(call.call_id) == call.call_id
        ids.append(call.call_id if fits and call.call_id not in ids else f"{number}_of_this_reply")
    echo = (None if "reasoning_content" in compat else echoed(message, "openai", model)) or {}
    thought = {"reasoning_content": plain_text(echo["reasoning_content"])} if "reasoning_content" in echo else {}
    if "no_reasoning" in compat and not thought:
        thought = {"reasoning_content": _NOT_KEPT}
    yield {
        "role": "assistant",
        "content": content or None,
        **thought,
        "tool_calls": [
            {
                "id": id_,
                "type": "function",
                "function": {"name": tool_name(call.name), "arguments": json.dumps(dict(call.args))},
            }
            for id_, call in zip(ids, message.tool_calls, strict=True)
        ],
    }
    for id_, call in zip(ids, message.tool_calls, strict=True):
        recorded = results.get(call.call_id)
        yield {"role": "tool", "tool_call_id": id_, "content": recorded.pop(0) if recorded else NO_RESULT}


class _Function(BaseModel):
    name: Name = None
    arguments: str | dict[str, Any] | None = None
    parameters: Any = None
    input: Any = None


class _CallPart(BaseModel):
    index: Count = None
    id: Name = None
    function: _Function | None = None
    arguments: Any = None
    input: Any = None
    parameters: Any = None
    unreadable: bool = False
    """True in place of calls in a form of no API."""

    @property
    def has_strange_arguments(self) -> bool:
        """Return True if arguments stand in another field than the API's, and none in that."""
        function = self.function or _Function()
        elsewhere = (self.arguments, self.input, self.parameters, function.parameters, function.input)
        return function.arguments in (None, "", {}) and any(each not in (None, "", {}, [], "{}") for each in elsewhere)


def _parts_alone(value: object) -> object:
    """Return the parts of a list. An empty value of another type means no calls; a full one is no list of calls."""
    if isinstance(value, list):
        return [part for part in value if part is not None]
    if isinstance(value, Mapping):
        return [value] if value else None
    return [{"unreadable": True}] if value and value is not True else None


def _or_nothing(value: object) -> object:
    """Return a value, or None for an empty one or a text: some servers send one for no call."""
    return None if isinstance(value, str | bool) else value or None


class _Said(BaseModel):
    role: Name = None
    content: Said = None
    reasoning_content: Loose[str] = None
    refusal: Loose[str] = None
    tool_calls: Annotated[list[_CallPart] | None, BeforeValidator(_parts_alone)] = None
    function_call: Annotated[_Function | None, BeforeValidator(_or_nothing)] = None
    """The one call of a reply, in the API's first form (https://platform.openai.com/docs/api-reference/chat/object)."""


class _Choice(BaseModel):
    index: Count = None
    message: _Said | None = None
    delta: _Said | None = None
    finish_reason: Reason = None
    error: Any = None


class _PromptDetails(BaseModel):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _CompletionDetails(BaseModel):
    reasoning_tokens: Count = None


class _TokenCounts(BaseModel):
    """Token counts. `prompt_tokens` includes the tokens read from or written to a cache."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: Loose[_PromptDetails] = None
    completion_tokens_details: Loose[_CompletionDetails] = None

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

    id: Name = None
    model: Name = None
    choices: list[_Choice | None] | None = None
    usage: Loose[_TokenCounts] = None
    service_tier: Name = None
    object: Name = None
    code: Name = None
    message: Loose[str] = None
    detail: Any = None
    errors: Any = None
    error: Any = None

    def failure(self) -> Any:
        """Return the error of a server in place of a chunk, as written; None for a chunk."""
        if self.error:
            return self.error
        said = {"message": self.message, "detail": self.detail, "errors": self.errors}
        is_chunk = self.choices is not None or self.usage is not None
        failed = self.object == "error" or (not is_chunk and any(said.values()))
        return {"code": self.code, **said} if failed else None


_OTHERS: Final = frozenset({"tool", "function", "user", "system", "developer"})
"""Roles of others: some servers repeat the request in the answer."""


@dataclass(slots=True)
class OpenAIAnswer:
    """The received part of an answer."""

    answer_id: str = "call"
    model: str = ""
    text: str = ""
    refusal: str = ""
    reasoning: str | None = None
    finish: str | None = None
    service_tier: str | None = None
    usage: Usage = field(default_factory=Usage)
    calls: CallAssembler = field(default_factory=CallAssembler)
    _by_delta: bool = False
    """True once a piece has arrived: a whole message behind it repeats it."""
    _ends_behind: bool = False
    """True if no piece of a call came with the reason for the end, or behind it."""

    def add(self, answered: object) -> str:
        """Add a chunk, or the whole answer, and return the new piece of the text.

        Raises pydantic.ValidationError, and FailedAnswer for an error of the server in place of a chunk.
        """
        chunk = _Chunk.model_validate(answered, from_attributes=True)
        if failure := chunk.failure():
            raise FailedAnswer(failure)
        self.answer_id = chunk.id or self.answer_id
        self.model = chunk.model or self.model
        self.service_tier = chunk.service_tier or self.service_tier
        if chunk.usage:
            self.usage = chunk.usage.usage()
        choice = next((each for each in chunk.choices or () if each is not None and not each.index), None)
        if choice is None:
            return ""
        if choice.error:
            raise FailedAnswer(choice.error)
        said, is_whole = self._said(choice)
        if self.finish is None or self.finish in _ENDS:  # a good end behind a bad one mends nothing
            self.finish = choice.finish_reason or self.finish
        parts = said.tool_calls or ([_CallPart(index=0, function=said.function_call)] if said.function_call else [])
        if parts or choice.finish_reason:
            self._ends_behind = is_whole or not parts
        for part in parts:
            function = part.function or _Function()
            if part.unreadable or part.has_strange_arguments:
                self.calls.doubt()
            if is_whole:
                self.calls.add_whole(call_id=part.id, name=function.name, arguments=function.arguments)
            else:
                self.calls.add(index=part.index, call_id=part.id, name=function.name, arguments=function.arguments)
        self.text += said.content or ""
        check_length("openai", self.text)
        self.refusal += said.refusal or ""
        if said.reasoning_content is not None:
            self.reasoning = (self.reasoning or "") + said.reasoning_content
        return said.content or ""

    def _said(self, choice: _Choice) -> tuple[_Said, bool]:
        """Return the words of a choice, and True for a whole message.

        Some servers send a message beside each piece, or the whole message behind the pieces.
        """
        piece, whole = choice.delta, choice.message
        if piece is not None and (whole is None or piece.model_fields_set - {"role"}):
            self._by_delta = True
            return (_Said() if piece.role in _OTHERS else piece), False
        if whole is None or whole.role in _OTHERS:
            return _Said(), False
        if not self._by_delta:
            return whole, True
        # Of what the pieces said already, calls alone may be missing.
        return _Said() if self.calls else _Said(tool_calls=whole.tool_calls, function_call=whole.function_call), True

    @property
    def began(self) -> bool:
        return bool(self.text or self.calls)

    def response(self, model: str, url: str, at: float) -> Response:
        """Return the whole answer of this model, with the price at the server with this URL, at this POSIX time.

        Raises ProviderError for an answer without an end.
        """
        if self.finish is None or BROKE_OFF.search(self.finish):
            raise broke_off("openai", as_ended=self.finish is None and self.began)
        is_cut, is_filtered = _LENGTH.fullmatch(self.finish) is not None, _FILTERED.match(self.finish) is not None
        if self.finish not in _ENDS and not is_cut and not is_filtered:
            told_once(f"openai: the server ends an answer of {model} with {self.finish[:40]!r}, which is not known")
        if self.finish == "tool_calls" and not self.calls:
            told_once(f"openai: the server ends an answer of {model} with calls, and sends none")
        calls = self.calls.calls(self.answer_id, ended=self.finish in _ENDS, cut=is_cut, ends_behind=self._ends_behind)
        finish: Literal["stop", "tools", "length", "refused"] = "stop"
        if self.refusal or is_filtered:
            finish, calls = "refused", ()
        elif is_cut:
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
