"""The conversion of a request to a call of the Responses API, and of an answer, whole or in events, to a Response.

The rules checked by the API: each call has one output, and no other output exists
(https://github.com/can1357/oh-my-pi/issues/106); an id of a call has at most 64 characters
(https://github.com/openai/codex/issues/14355); a reasoning item is followed by the item of the reasoning, and an item
with an id of the API only follows the item's own reasoning (https://github.com/openai/openai-python/issues/3008). The
call is well-formed even if the history has gaps.

The server stores no data, so the encrypted reasoning of a reply with tool calls goes back with the reply
(https://developers.openai.com/api/docs/guides/reasoning#encrypted-reasoning-items).

Shapes: https://developers.openai.com/api/reference/resources/responses and the streaming events.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from channels import Json
from gateway.providers.answer_schema import strict_schema
from gateway.providers.base import ModelMessage, Request, Response, ToolCall, ToolSpec, Usage
from gateway.providers.calls import CallAssembler, tool_call
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
from gateway.providers.lenient import Count, Loose, Name, broke_off
from gateway.providers.prices import priced
from gateway.providers.vendor import Vendor

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_Json: TypeAlias = dict[str, Any]


def responses_parameters(request: Request, model: str, room_to_reason: int) -> dict[str, Any]:
    """Return the parameters of one call. `room_to_reason` tokens are added to the limit of the reply."""
    tools = [_tool(tool) for tool in request.tools]
    system = plain_text(request.system)
    parameters: dict[str, Any] = {
        "model": model,
        "instructions": system,
        "tools": tools,
        "input": _Input(request, model).items,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": _prefix_key(tools, system),
        "max_output_tokens": request.max_tokens and request.max_tokens + room_to_reason,
        "timeout": request.timeout_seconds,
    }
    if request.schema is not None:
        answer = {"type": "json_schema", "name": "answer", "schema": strict_schema(request.schema), "strict": True}
        parameters["text"] = {"format": answer}
    return {name: value for name, value in parameters.items() if value not in (None, "", [])}


def _prefix_key(tools: list[_Json], system: str) -> str:
    """Return a name for the common part of all conversations of a bot.

    The vendor routes requests with one name to the servers with the common part in the cache
    (https://developers.openai.com/api/docs/guides/prompt-caching).
    """
    prefix = json.dumps([tools, system]).encode()
    return f"askfirst-{hashlib.sha256(prefix).hexdigest()[:32]}"


def _tool(tool: ToolSpec) -> _Json:
    """Return a tool, not strict. By default the API is strict about arguments, and accepts fewer schemas."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


class _Input:
    """The items of one call. Results without a call are left out. Calls without a result get a note instead."""

    def __init__(self, request: Request, model: str) -> None:
        self.items: list[_Json] = []
        self._model = model
        self._ids: set[str] = set()
        events: list[str] = []
        for index, message in enumerate(request.messages):
            match message.role:
                case "event":
                    events.append(event_text(message))
                case "user":
                    self._add_message("\n\n".join([*events, said_text(message, request.contents)]), message, request)
                    events.clear()
                case "assistant":
                    self._add_said("user", "\n\n".join(events))
                    events.clear()
                    self._add_reply(message, results_in(request.messages[index + 1 :]))
        self._add_said("user", "\n\n".join(events))

    def _add_message(self, text: str, message: ModelMessage, request: Request) -> None:
        """Add a person's text and files. https://platform.openai.com/docs/api-reference/responses/create, `input`."""
        parts: list[_Json] = []
        for file, data in shown_files(message, request.contents):
            url = f"data:{file.mime_type};base64,{data}"
            if file.mime_type == "application/pdf":
                parts.append({"type": "input_file", "filename": plain_text(file.filename), "file_data": url})
            else:
                parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
        if not parts:
            self._add_said("user", text)
            return
        said = [{"type": "input_text", "text": text}] if text else []
        self.items.append({"role": "user", "content": [*said, *parts]})

    def _add_said(self, role: str, text: str) -> None:
        if text:
            self.items.append({"role": role, "content": text})

    def _add_reply(self, message: ModelMessage, results: dict[str, list[str]]) -> None:
        kept = self._as_given(message)
        ids = [call.call_id if kept else self._new_id(call.call_id) for call in message.tool_calls]
        self._ids.update(ids)
        if kept:
            self.items.extend(kept)
        else:
            self._add_said("assistant", plain_text(message.content))
            for id_, call in zip(ids, message.tool_calls, strict=True):
                arguments = json.dumps(dict(call.args))
                self.items.append(
                    {"type": "function_call", "call_id": id_, "name": tool_name(call.name), "arguments": arguments}
                )
        for id_, call in zip(ids, message.tool_calls, strict=True):
            recorded = results.get(call.call_id)
            output = recorded.pop(0) if recorded else NO_RESULT
            self.items.append({"type": "function_call_output", "call_id": id_, "output": output})

    def _as_given(self, message: ModelMessage) -> list[_Json]:
        """Return the items of a reply in the API's original form, if words and calls are unchanged; else none."""
        echo = echoed(message, "openai", self._model)
        if echo is None or "items" not in echo:
            return []
        items: list[_Json] = json.loads(json.dumps(echo["items"], ensure_ascii=False).encode("utf-8", "replace"))
        calls = [_call(item) for item in items if item["type"] == "function_call"]
        words = "".join(_words(item) for item in items)
        fit = all(_CALL_ID.fullmatch(call.call_id) and call.call_id not in self._ids for call in calls)
        same = words.split() == plain_text(message.content).split() and calls == list(message.tool_calls)
        return items if fit and same and items == echo["items"] else []

    def _new_id(self, call_id: str) -> str:
        if not _CALL_ID.fullmatch(call_id) or call_id in self._ids:
            call_id = next(free for n in range(len(self._ids) + 1) if (free := f"call_{n}") not in self._ids)
        self._ids.add(call_id)
        return call_id


def _call(item: Mapping[str, Any]) -> ToolCall:
    return tool_call(item["call_id"], item["name"], item["arguments"])


def _words(item: Mapping[str, Any]) -> str:
    if item["type"] != "message":
        return ""
    return "".join(part["text"] for part in item["content"] if part["type"] == "output_text") + "\n\n"


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: str
    text: str = ""
    refusal: str = ""


class _Item(BaseModel):
    """One item of an answer, with all fields, to send back unchanged."""

    model_config = ConfigDict(extra="allow")

    type: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    content: list[_Part] | None = None
    encrypted_content: str | None = None

    @property
    def said(self) -> str:
        return "".join(part.text for part in self.content or () if part.type == "output_text")

    @property
    def refused(self) -> str:
        return "".join(part.refusal for part in self.content or () if part.type == "refusal")

    def as_sent(self) -> dict[str, Json]:
        """Return the item in the form accepted back by the API: without empty fields.

        Only an answer has the status of the reasoning (https://github.com/BerriAI/litellm/issues/13420).
        """
        left_out = {"status"} if self.type == "reasoning" else None
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude=left_out)


class _Cached(BaseModel):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _ResponseTokens(BaseModel):
    """Token counts. `output_tokens` includes the reasoning, `input_tokens` all tokens read or written by a cache."""

    input_tokens: Count = None
    output_tokens: Count = None
    input_tokens_details: Loose[_Cached] = None


class _Error(BaseModel):
    code: Name = None
    message: Name = None


class _Incomplete(BaseModel):
    reason: str | None = None


class _Whole(BaseModel):
    """The used fields of an answer, validated here because the library passes answers on unchecked."""

    model: Name = None
    status: str
    output: list[_Item]
    usage: Loose[_ResponseTokens] = None
    error: Loose[_Error] = None
    incomplete_details: Loose[_Incomplete] = None
    service_tier: Name = None

    def counted(self) -> Usage:
        tokens = self.usage or _ResponseTokens()
        cached = tokens.input_tokens_details or _Cached()
        return Usage(
            prompt_tokens=tokens.input_tokens or 0,
            completion_tokens=tokens.output_tokens or 0,
            cached_prompt_tokens=cached.cached_tokens or 0,
            cache_write_tokens=cached.cache_write_tokens or 0,
            model=self.model or "",
            provider="openai",
        )


class _Typed(BaseModel):
    type: str


class _TextDelta(BaseModel):
    delta: str
    output_index: Count = None


class _ItemDone(BaseModel):
    item: _Item


class _Arguments(BaseModel):
    delta: Name = None
    arguments: Name = None
    item_id: Name = None
    output_index: Count = None


class _Ended(BaseModel):
    response: _Whole


class ResponsesAnswer:
    """The received part of an answer."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._whole: _Whole | None = None
        self._items: list[_Item] = []
        """The items so far, for a server that leaves them out of the whole answer."""
        self._pieces: dict[tuple[int | None, str | None], str] = {}
        """The place of a call -> the pieces of its arguments so far."""
        self._arguments: list[str] = []
        """The arguments of the ended calls, to compare with the whole answer."""
        self._speaking: int | None = None
        """The index of the message with the latest words."""

    def end(self, answered: Any) -> None:
        """Set the whole answer. Raises pydantic.ValidationError."""
        self._whole = _Whole.model_validate(_plain(answered))

    def add(self, event: Any) -> str:
        """Add an event, and return the event's piece of the text. Raises pydantic.ValidationError, ProviderError."""
        plain = _plain(event)
        match _Typed.model_validate(plain).type:
            case "response.output_text.delta":
                return self._piece(_TextDelta.model_validate(plain))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._whole = _Ended.model_validate(plain).response
            case "response.output_item.done":
                self._items.append(_ItemDone.model_validate(plain).item)
            case "response.function_call_arguments.delta" | "response.function_call_arguments.done" as kind:
                self._add_arguments(_Arguments.model_validate(plain), is_done=kind.endswith("done"))
            case "error":
                error = _Error.model_validate(plain)
                raise self._vendor.failed(error.code, error.message)
        return ""

    def _piece(self, delta: _TextDelta) -> str:
        """Return a piece of the text, after an empty line where another message begins."""
        before, self._speaking = self._speaking, delta.output_index if delta.delta else self._speaking
        return delta.delta if before in (None, self._speaking) else f"\n\n{delta.delta}"

    def _add_arguments(self, piece: _Arguments, *, is_done: bool) -> None:
        place = piece.output_index, piece.item_id
        so_far = self._pieces.pop(place, "") + (piece.delta or "")
        if is_done:
            self._arguments.append(piece.arguments or so_far)
        else:
            self._pieces[place] = so_far

    def response(self, model: str, url: str, at: float) -> Response:
        """Return the whole answer of this model, with the price at the server with this URL, at this POSIX time.

        Raises ProviderError for an answer with a failure or without an end.
        """
        whole = self._whole
        if whole is None or whole.status in ("queued", "in_progress"):
            raise broke_off(self._vendor.name, as_ended=self._speaking is not None)
        if whole.status not in ("completed", "incomplete"):
            error = whole.error or _Error()
            raise self._vendor.failed(error.code, error.message)
        output = whole.output or self._items
        assembler = self._calls(output)
        ended = whole.status == "completed"
        calls = assembler.calls("call", ended=ended, cut=not ended)
        refused = "".join(item.refused for item in output)
        reason = whole.incomplete_details.reason if whole.incomplete_details else None
        finish: Literal["stop", "tools", "length", "refused"] = "tools" if calls else "stop"
        if refused or reason == "content_filter":
            finish, calls = "refused", ()
        elif whole.status == "incomplete":
            finish = "length"
        items = _kept(output, calls) if finish == "tools" else []
        return Response(
            content=refused or "\n\n".join(said for item in output if (said := item.said)),
            tool_calls=calls,
            usage=priced(whole.counted(), url, at, whole.service_tier),
            model=whole.model or "",
            finish=finish,
            echo={"provider": "openai", "model": model, "items": items} if items else None,
        )

    def _calls(self, output: list[_Item]) -> CallAssembler:
        """Return the calls. Arguments in the pieces alone, or others than in the whole answer, make all doubtful."""
        assembler = CallAssembler()
        for item in output:
            if item.type == "function_call":
                assembler.add_whole(call_id=item.call_id, name=item.name, arguments=item.arguments)
                if "arguments" not in item.model_fields_set:
                    assembler.lose_piece()
        earlier = [item.arguments for item in self._items if item.type == "function_call"]
        told = map(_compared, (*earlier, *self._arguments, *self._pieces.values()))
        written = [_compared(""), *(_compared(item.arguments) for item in output if item.type == "function_call")]
        if any(call not in written for call in told):
            assembler.doubt()
        return assembler


def _compared(arguments: str) -> ToolCall:
    """Return a call with these arguments alone, for a comparison. Another writing of the same value is equal."""
    return tool_call("", "", arguments.strip())


def _kept(output: list[_Item], calls: tuple[ToolCall, ...]) -> list[Json]:
    """Return the items of a reply with tool calls; none without reasoning, or if the items cannot be sent back.

    The server stores no reasoning, so an item without content cannot be found there
    (https://github.com/vercel/ai/issues/7543).
    """
    reasoning = [item for item in output if item.type == "reasoning"]
    known = {"reasoning", "message", "function_call"}.issuperset(item.type for item in output)
    if not reasoning or not known or not all(item.encrypted_content for item in reasoning):
        return []
    if output[-1].type == "reasoning" or any(call.parse_error for call in calls):
        return []
    return [item.as_sent() for item in output]


def _plain(answered: Any) -> Any:
    """Return the fields received by the library. Raises ValueError for anything but an object."""
    if not hasattr(answered, "to_dict"):
        raise ValueError("not an object")
    return answered.to_dict(mode="json", warnings=False)
