"""The conversion of a request to a call of the Responses API, well-formed even if the history has gaps.

The rules that the API checks: each call has one output, and no other output exists
(https://github.com/can1357/oh-my-pi/issues/106); an id of a call has at most 64 characters
(https://github.com/openai/codex/issues/14355); a reasoning item is followed by the item that it led to, and an item
with an id of the API by no other reasoning than its own (https://github.com/openai/openai-python/issues/3008).

The server stores nothing, so that the encrypted reasoning of a reply that calls tools goes back with it
(https://developers.openai.com/api/docs/guides/reasoning#encrypted-reasoning-items).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from gateway.providers.base import ModelMessage, Request, ToolCall, ToolSpec
from gateway.providers.calling import tool_call
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
from gateway.providers.strict_schema import strict_schema

__all__ = ["responses_parameters"]

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_Item: TypeAlias = dict[str, Any]


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


def _prefix_key(tools: list[_Item], system: str) -> str:
    """Return a name for the part that all conversations of a bot have in common.

    The vendor sends requests with one name to the servers that have the common part in their cache
    (https://developers.openai.com/api/docs/guides/prompt-caching).
    """
    prefix = json.dumps([tools, system]).encode()
    return f"askfirst-{hashlib.sha256(prefix).hexdigest()[:32]}"


def _tool(tool: ToolSpec) -> _Item:
    """Return a tool. The API is strict about arguments unless it is told otherwise, and takes fewer schemas then."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


class _Input:
    """The items of one call. Results without their call are left out. Calls without a result get a note instead."""

    def __init__(self, request: Request, model: str) -> None:
        self.items: list[_Item] = []
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
        parts: list[_Item] = []
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

    def _as_given(self, message: ModelMessage) -> list[_Item]:
        """Return the items of a reply as the API gave them, if its words and calls are unchanged; else none."""
        echo = echoed(message, "openai", self._model)
        if echo is None or "items" not in echo:
            return []
        items: list[_Item] = json.loads(json.dumps(echo["items"], ensure_ascii=False).encode("utf-8", "replace"))
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
