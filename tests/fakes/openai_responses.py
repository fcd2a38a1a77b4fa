"""A server of OpenAI's Responses API with the real shapes, refusals and ways to fail.

Shapes: https://developers.openai.com/api/reference/resources/responses and its streaming events. The source of each
check stands beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openai.types.responses import (
    EasyInputMessageParam,
    ResponseFunctionToolCallParam,
    ResponseOutputMessageParam,
    ResponseReasoningItemParam,
)
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.responses.response_input_param import FunctionCallOutput

from tests.fakes.model_server import Fail, Say, cut, pieces, tokens
from tests.fakes.openai import FakeOpenAI, refused_name
from tests.fakes.schemas import fault_of_schema, fault_of_url


@dataclass(frozen=True)
class Failed(Say):
    """An answer that begins and then fails with this code."""

    code: str = "server_error"
    message: str = "An error occurred while processing your request."


@dataclass(frozen=True)
class Items(Say):
    """An answer of these items, in this order. The server gives ids and encrypts."""

    items: Sequence[Mapping[str, Any]] = ()


class FakeResponses(FakeOpenAI):
    """``model.url`` is for OPENAI_BASE_URL and ``model.key`` for OPENAI_API_KEY. The server stores no item."""

    path = "/v1/responses"
    history = "input"

    def __init__(self, *, key: str = "sk-test-0123456789abcdef", port: int = 0) -> None:
        super().__init__(key=key, port=port)
        self.cached = self.written = 1
        """The tokens of each request read from the cache, and written to the cache."""
        self._made: dict[str, tuple[str, dict[str, Any], str | None]] = {}
        """Item id -> the model, the item, and the id of the reasoning before the item."""

    def refused_body(self, body: Any) -> Fail | None:
        return refusal_of(body) or self._refused_items(body)

    def too_long(self, sent: int, taken: int) -> Fail:
        # https://github.com/BerriAI/litellm/issues/29223
        words = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return Fail(400, "context_length_exceeded", words, param="input")

    def stream_error(self, fail: Fail) -> dict[str, Any]:
        return {"type": "error", "code": fail.type, "message": fail.message, "param": None, "sequence_number": 9}

    def whole(self, body: Mapping[str, Any], answer: Say, number: int) -> dict[str, Any]:
        return self._ended(body, answer, number, self._output(body, answer, number))

    def events(self, body: Mapping[str, Any], answer: Say, number: int) -> Iterator[tuple[str | None, str]]:
        for place, event in enumerate(self._events(body, answer, number)):
            yield event["type"], json.dumps({**event, "sequence_number": place})

    def _events(self, body: Mapping[str, Any], answer: Say, number: int) -> Iterator[dict[str, Any]]:
        begun = {**_head(body, number), "status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        output = self._output(body, answer, number)
        for index, item in enumerate(output):
            yield from _item_events(item, index)
        ended = self._ended(body, answer, number, output)
        yield {"type": f"response.{ended['status']}", "response": ended}

    def _ended(
        self, body: Mapping[str, Any], answer: Say, number: int, output: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        status, why = ("incomplete", answer.ends) if answer.ends else ("completed", None)
        failed = isinstance(answer, Failed)
        return {
            **_head(body, number),
            "status": "failed" if failed else status,
            "error": {"code": answer.code, "message": answer.message} if isinstance(answer, Failed) else None,
            "incomplete_details": {"reason": why} if why else None,
            "output": [] if failed else output,
            "service_tier": "default",
            "usage": None if failed else self._usage(body, answer),
        }

    def _usage(self, body: Mapping[str, Any], answer: Say) -> dict[str, Any]:
        read = tokens(json.dumps(body["input"]))
        reasoned = tokens(answer.thinks or "")
        said = len(answer.text.split()) + sum(len(str(call.arguments).split()) for call in answer.calls)
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": self.written},
            "output_tokens": said + reasoned,
            "output_tokens_details": {"reasoning_tokens": reasoned},
            "total_tokens": read + said + reasoned,
        }

    def _output(self, body: Mapping[str, Any], answer: Say, number: int) -> list[dict[str, Any]]:
        """Return the items of the real server: each has an id, and a call also a call id for its output."""
        output = [dict(item) for item in (answer.items if isinstance(answer, Items) else _items(answer))]
        reasoning: str | None = None
        for index, item in enumerate(output):
            prefix = {"reasoning": "rs", "message": "msg", "function_call": "fc"}.get(item["type"], "it")
            item["id"] = f"{prefix}_{number}_{index}"
            item["status"] = "incomplete" if answer.ends else "completed"
            if item["type"] == "reasoning":
                reasoning = item["id"]
                if "reasoning.encrypted_content" in body.get("include", ()):
                    item["encrypted_content"] = f"gAAAA{number:04}{index}"
            if item["type"] == "function_call":
                item.setdefault("call_id", f"call_{number}_{index}")
            self._made[item["id"]] = (body["model"], item, reasoning)
        return output

    def _refused_items(self, body: Mapping[str, Any]) -> Fail | None:
        given = body["input"] if isinstance(body["input"], list) else []
        for index, item in enumerate(given):
            if "id" not in item:
                continue
            if item["id"] not in self._made or (item["type"] == "reasoning" and not item.get("encrypted_content")):
                # https://github.com/vercel/ai/issues/7543
                return _refused(f"Item with id '{item['id']}' not found. Items are not persisted.", at=index)
            model, made, reasoning = self._made[item["id"]]
            if item["type"] == "reasoning":
                if model != body["model"] or item != {k: v for k, v in made.items() if k != "status"}:
                    # https://github.com/experientiallabs/experiential/pull/965
                    words = f"The encrypted content {item['encrypted_content']} could not be verified."
                    return Fail(400, "invalid_encrypted_content", words, param="input")
                after = given[index + 1] if index + 1 < len(given) else {}
                if self._made.get(after.get("id", ""), ("", {}, None))[2] not in (item["id"], after.get("id", "")):
                    # https://github.com/continuedev/continue/issues/8933
                    return _refused(
                        f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.",
                        at=index,
                    )
            elif reasoning and reasoning not in [before.get("id") for before in given[:index]]:
                # https://github.com/continuedev/continue/issues/10018
                return _refused(
                    f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: "
                    f"'{reasoning}'.",
                    at=index,
                )
        return None


def _head(body: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_760_000_000,
        "model": body["model"],
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "store": body.get("store", True),
    }


def _items(answer: Say) -> Iterator[dict[str, Any]]:
    if answer.thinks is not None:
        yield {"type": "reasoning", "summary": []}
    if answer.refusal:
        yield {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": answer.refusal}]}
    elif answer.text:
        text = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        yield {"type": "message", "role": "assistant", "content": [text]}
    for call in answer.calls:
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        yield {"type": "function_call", "name": call.name, "arguments": arguments}


def _item_events(item: Mapping[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """Yield the events of the real server: an empty item, the parts in pieces, the whole item."""
    at = {"item_id": item["id"], "output_index": index}
    empty: dict[str, Any] = {}
    match item["type"]:
        case "message":
            empty = {"content": []}
        case "function_call":
            empty = {"arguments": ""}
        case "reasoning" if "encrypted_content" in item:
            # "may be incomplete": openai/types/responses/response_output_item_added_event.py
            empty = {"encrypted_content": "gAAAA"}
    added = {**item, **empty, "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": added}
    for number, part in enumerate(item.get("content", ())):
        kind = part["type"]
        field = "refusal" if kind == "refusal" else "text"
        place = {**at, "content_index": number}
        yield {"type": "response.content_part.added", **place, "part": {**part, field: ""}}
        for piece in pieces(part[field]):
            yield {"type": f"response.{kind}.delta", **place, "delta": piece, "logprobs": []}
        yield {"type": f"response.{kind}.done", **place, field: part[field], "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}
    if item["type"] == "function_call":
        for piece in cut(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        yield {"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


# The fields the vendor's own library knows. Only an answer has the status of its reasoning:
# https://github.com/BerriAI/litellm/issues/13420
_FIELDS = {*ResponseCreateParamsBase.__annotations__, "stream"}
_ITEMS = {
    "reasoning": {*ResponseReasoningItemParam.__annotations__} - {"status"},
    "message": {*ResponseOutputMessageParam.__annotations__, *EasyInputMessageParam.__annotations__},
    "function_call": {*ResponseFunctionToolCallParam.__annotations__},
    "function_call_output": {*FunctionCallOutput.__annotations__},
}
_ROLES = {"user", "assistant", "system", "developer"}


def _refused(message: str, *, at: int | None = None, code: str | None = None) -> Fail:
    return Fail(400, code, message, param="input" if at is None else f"input[{at}]")


def refusal_of(body: Any) -> Fail | None:
    """Return the error of the real server for this request; None if accepted."""
    if not isinstance(body, dict):
        return Fail(400, message="We could not parse the JSON body of your request.")
    if unknown := sorted(body.keys() - _FIELDS):
        return Fail(400, "unknown_parameter", f"Unknown parameter: '{unknown[0]}'.", param=unknown[0])
    if not isinstance(body.get("model"), str) or not body["model"]:
        return Fail(400, "missing_required_parameter", "Missing required parameter: 'model'.", param="model")
    if not isinstance(body.get("input"), str | list) or not body["input"]:
        return Fail(400, "missing_required_parameter", "Missing required parameter: 'input'.", param="input")
    return _refused_setting(body) or _refused_tools(body.get("tools", [])) or _refused_input(body["input"])


def _refused_setting(body: Mapping[str, Any]) -> Fail | None:
    if body.get("temperature") is not None and re.match(r"gpt-5|o\d", body["model"]):
        # https://github.com/glebm/i18n-tasks/issues/672
        message = "Unsupported parameter: 'temperature' is not supported with this model."
        return Fail(400, "unsupported_parameter", message, param="temperature")
    if body.get("max_output_tokens") is not None and body["max_output_tokens"] < 16:
        message = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
        return Fail(400, "integer_below_min_value", message, param="max_output_tokens")
    answer = body.get("text", {}).get("format", {"type": "text"})
    if answer["type"] == "json_schema" and (fault := fault_of_schema(answer["schema"])) is not None:
        message = f"Invalid schema for response_format '{answer['name']}': {fault}."
        return Fail(400, "invalid_json_schema", message, param="text.format.schema")
    return None


def _refused_tools(tools: Sequence[Mapping[str, Any]]) -> Fail | None:
    for index, tool in enumerate(tools):
        at = f"tools[{index}]"
        if tool.get("type") != "function":
            return Fail(400, "invalid_value", message=f"Invalid value: '{at}.type'.", param=f"{at}.type")
        if refused := refused_name(tool.get("name"), f"{at}.name"):
            return refused
        parameters = tool.get("parameters", {})
        # Strict by default: https://developers.openai.com/api/docs/guides/function-calling#strict-mode
        fault = fault_of_schema(parameters) if tool.get("strict", True) else None
        if parameters.get("type") != "object" or fault:
            message = f"Invalid schema for function '{tool['name']}': {fault or 'it must be an object'}."
            return Fail(400, "invalid_function_parameters", message, param=f"{at}.parameters")
    return None


def _refused_input(given: str | Sequence[Any]) -> Fail | None:
    calls: list[str] = []
    answered: list[str] = []
    for index, item in enumerate(() if isinstance(given, str) else given):
        kind = item.get("type", "message")
        if kind not in _ITEMS:
            return _refused(f"Invalid value: '{kind}'.", at=index, code="invalid_value")
        if unknown := sorted(item.keys() - _ITEMS[kind]):
            name = f"input[{index}].{unknown[0]}"
            return Fail(400, "unknown_parameter", f"Unknown parameter: '{name}'.", param=name)
        if kind == "message":
            if item.get("role") not in _ROLES or not isinstance(item.get("content"), str | list):
                return _refused(f"Invalid value: 'input[{index}]'.", at=index, code="invalid_value")
            for part in item["content"] if isinstance(item["content"], list) else ():
                url = part.get("image_url") if part.get("type") == "input_image" else part.get("file_data")
                if part.get("type") in ("input_image", "input_file") and (fault := fault_of_url(url)):
                    return _refused(fault, at=index, code="invalid_value")
        elif kind != "reasoning":
            call_id = item.get("call_id")
            if not isinstance(call_id, str) or not 1 <= len(call_id) <= 64:
                # https://github.com/openai/codex/issues/14355
                message = f"Invalid 'input[{index}].call_id': string too long. Expected maximum length 64."
                return _refused(message, at=index, code="string_above_max_length")
            if refused := _refused_call(kind, item, calls, answered, index):
                return refused
    for call_id in calls:
        if call_id not in answered:
            # https://github.com/router-for-me/CLIProxyAPI/issues/2368
            return _refused(f"No tool output found for function call {call_id}.")
    return None


def _refused_call(kind: str, item: Mapping[str, Any], calls: list[str], answered: list[str], index: int) -> Fail | None:
    call_id = item["call_id"]
    if kind == "function_call":
        if call_id in calls:
            return _refused(f"Duplicate function call {call_id}.", at=index)
        if not isinstance(item.get("arguments"), str):
            return _refused(f"Invalid type for 'input[{index}].arguments'.", at=index, code="invalid_type")
        calls.append(call_id)
        return refused_name(item.get("name"), f"input[{index}].name")
    if call_id not in calls or call_id in answered or not isinstance(item.get("output"), str | list):
        # https://github.com/can1357/oh-my-pi/issues/106
        return _refused(f"No tool call found for function call output with call_id {call_id}.", at=index)
    answered.append(call_id)
    return None
