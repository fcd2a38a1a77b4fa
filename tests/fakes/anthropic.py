"""A server of Anthropic's Messages API with the real shapes, refusals and ways to fail.

Shapes: https://platform.claude.com/docs/en/api/messages and /build-with-claude/streaming. Errors:
https://platform.claude.com/docs/en/api/errors. The source of each check stands beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsBase

from tests.fakes.model_server import Answer, Break, Call, Fail, ModelServer, Raw, Say, cut, pieces, tokens
from tests.fakes.schemas import THOUGHTS, Thoughts, fault_of_data, fault_of_schema

__all__ = ["Answer", "Blocks", "Break", "Call", "Fail", "FakeAnthropic", "Raw", "Say", "refusal_of"]

VERSION = "2026-10-21"

# https://platform.claude.com/docs/en/api/errors#http-errors
_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True)
class Blocks(Say):
    """An answer of these blocks, in this order. The server signs the thoughts and names the calls."""

    content: Sequence[Mapping[str, Any]] = ()


class FakeAnthropic(ModelServer):
    """``model.url`` is for ANTHROPIC_BASE_URL and ``model.key`` for ANTHROPIC_API_KEY."""

    path = "/v1/messages"

    def __init__(self, *, key: str = "sk-ant-test-0123456789abcdef", port: int = 0) -> None:
        super().__init__(key=key, port=port)
        self._thoughts = Thoughts()

    def refused_headers(self, headers: Mapping[str, str]) -> Fail | None:
        """The key comes in either header; x-api-key counts first. Source: https://platform.claude.com/docs/en/api/overview"""
        bearer = headers.get("Authorization", "").removeprefix("Bearer ")
        if (given := headers.get("x-api-key", bearer)) != self.key:
            return Fail(401, message="invalid x-api-key" if given else "x-api-key header is required")
        if headers.get("anthropic-version") != VERSION:
            message = "anthropic-version: header is required, and this fake speaks one version only"
            return Fail(400, message=message)
        return None

    def refused_body(self, body: Any) -> Fail | None:
        return refusal_of(body) or self._thoughts.refused(body)

    def too_long(self, sent: int, taken: int) -> Fail:
        # https://platform.claude.com/docs/en/build-with-claude/context-windows
        return Fail(400, message=f"prompt is too long: {sent} tokens > {taken} maximum")

    def error(self, fail: Fail) -> dict[str, Any]:
        by_status = _TYPES.get(fail.status, "api_error" if fail.status >= 500 else "invalid_request_error")
        error: dict[str, Any] = {"type": fail.type or by_status, "message": fail.message}
        if fail.code:
            error["details"] = {"error_code": fail.code}
        return {"type": "error", "error": error, "request_id": "req_1"}

    def whole(self, body: Mapping[str, Any], answer: Say, number: int) -> dict[str, Any]:
        ended = {"content": self._blocks(body, answer, number), "stop_reason": _stop_reason(answer)}
        return {**_head(body, number), **ended, "usage": _usage(body, answer)}

    def events(self, body: Mapping[str, Any], answer: Say, number: int) -> Iterator[tuple[str | None, str]]:
        for event in _events(body, answer, number, self._blocks(body, answer, number)):
            yield event["type"], json.dumps(event)

    def _blocks(self, body: Mapping[str, Any], answer: Say, number: int) -> list[dict[str, Any]]:
        blocks = [dict(block) for block in (answer.content if isinstance(answer, Blocks) else _content(answer))]
        for index, block in enumerate(block for block in blocks if block["type"] == "tool_use"):
            block["id"] = f"toolu_{number}_{index}"
        self._thoughts.remember(body, blocks)
        return blocks


def _head(body: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _content(answer: Say) -> Iterator[dict[str, Any]]:
    if answer.thinks is not None:
        yield {"type": "thinking", "thinking": answer.thinks}
    if answer.text:
        yield {"type": "text", "text": answer.text}
    for call in answer.calls:
        yield {"type": "tool_use", "name": call.name, "input": call.arguments}


def _stop_reason(answer: Say) -> str:
    calls = isinstance(answer, Blocks) and any(block["type"] == "tool_use" for block in answer.content)
    return answer.ends or ("tool_use" if calls or answer.calls else "end_turn")


def _usage(body: Mapping[str, Any], answer: Say) -> dict[str, int]:
    """Count words as tokens. One token is read from the cache, one is written."""
    said = len(answer.text.split()) + sum(len(str(call.arguments).split()) for call in answer.calls)
    return {
        "input_tokens": tokens(json.dumps(body["messages"])),
        "cache_creation_input_tokens": 1,
        "cache_read_input_tokens": 1,
        "output_tokens": said,
    }


def _events(
    body: Mapping[str, Any], answer: Say, number: int, blocks: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    usage = _usage(body, answer)
    yield {"type": "message_start", "message": {**_head(body, number), "usage": usage | {"output_tokens": 1}}}
    for index, block in enumerate(blocks):
        for kind, inside in _block_events(block):
            yield {"type": f"content_block_{kind}", "index": index, **inside}
        if index == 0:
            yield {"type": "ping"}
    delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def _block_events(block: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of the real server: an empty block, its pieces, the end. A call's input is text, first empty.

    Thoughts are signed at the end; hidden thoughts have only the signature
    (https://platform.claude.com/docs/en/build-with-claude/thinking#controlling-thinking-display).
    """
    empty: dict[str, Any] = {}
    deltas: list[dict[str, Any]] = []
    match block["type"]:
        case "text":
            empty = {"text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        case "thinking":
            empty = {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use":
            given = block["input"]
            text = given if isinstance(given, str) else json.dumps(given)
            empty = {"input": {}}
            parts = ["", *cut(text)]
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    yield "start", {"content_block": {**block, **empty}}
    for delta in deltas:
        yield "delta", {"delta": delta}
    yield "stop", {}


# The fields the vendor's own library knows.
_FIELDS = {*MessageCreateParamsBase.__annotations__, "stream"}
_BLOCKS = {"document", "image", "text", "tool_use", "tool_result", *THOUGHTS}


def refusal_of(body: Any) -> Fail | None:
    """Return the error of the real server for this request; None if accepted."""
    if not isinstance(body, dict):
        return Fail(400, message="The request body is not valid JSON")
    for name in ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            return Fail(400, message=f"{name}: Field required")
    if unknown := sorted(body.keys() - _FIELDS):
        return Fail(400, message=f"{unknown[0]}: Extra inputs are not permitted")
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 1:
        return Fail(400, message="max_tokens: Input should be greater than or equal to 1")
    if not body["messages"]:
        return Fail(400, message="messages: at least one message is required")
    answer = body.get("output_config", {}).get("format")
    if answer is not None and (fault := fault_of_schema(answer["schema"])) is not None:
        return Fail(400, message=f"output_config.format.schema: {fault}")
    if json.dumps(body).count('"cache_control"') > 4:
        # https://platform.claude.com/docs/en/build-with-claude/prompt-caching#when-to-use-multiple-breakpoints
        return Fail(400, message="A maximum of 4 blocks with cache_control may be provided.")
    return _refused_blocks("system", body.get("system", "x")) or _refused_tools(body) or _refused(body["messages"])


def _refused_tools(body: Mapping[str, Any]) -> Fail | None:
    for index, tool in enumerate(body.get("tools", ())):
        if unknown := sorted(tool.keys() - {"name", "description", "input_schema", "cache_control"}):
            return Fail(400, message=f"tools.{index}.custom.{unknown[0]}: Extra inputs are not permitted")
        if refused := _refused_name(tool.get("name"), f"tools.{index}.custom.name"):
            return refused
        if tool.get("input_schema", {}).get("type") != "object":
            return Fail(400, message=f"tools.{index}.custom.input_schema.type: Field required")
    return None


def _refused_name(name: object, at: str) -> Fail | None:
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools
    if isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name):
        return None
    return Fail(400, message=f"{at}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


def _refused(messages: Sequence[Any]) -> Fail | None:
    ids: list[str] = []
    calls: list[str] = []
    for index, message in enumerate(messages):
        at = f"messages.{index}"
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            return Fail(400, message=f"{at}: Input should be 'user' or 'assistant'")
        if index == 0 and message["role"] != "user":
            return Fail(400, message='messages: first message must use the "user" role')
        content = message.get("content")
        if refused := _refused_blocks(f"{at}.content", content) or _refused_results(calls, message, at):
            return refused
        calls = []
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if block["type"] == "tool_use":
                if refused := _refused_call(block, message["role"], ids, f"{at}.content.{number}"):
                    return refused
                ids.append(block["id"])
                calls.append(block["id"])
    if calls:
        return _unanswered(calls, f"messages.{len(messages) - 1}")
    if messages[-1]["role"] == "assistant":
        # https://platform.claude.com/docs/en/api/errors#prefill-not-supported
        return Fail(400, message="This model does not support assistant message prefill.")
    return None


def _refused_blocks(at: str, content: object) -> Fail | None:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        return Fail(400, message=f"{at}: all messages must have non-empty content")
    for number, block in enumerate(content):
        if not isinstance(block, dict) or block.get("type") not in _BLOCKS:
            return Fail(400, message=f"{at}.{number}: Input tag found does not match any of the expected tags")
        # https://github.com/anthropics/claude-code/issues/23440
        if block["type"] == "text" and not str(block.get("text") or "").strip():
            return Fail(400, message="messages: text content blocks must contain non-whitespace text")
        if block["type"] in ("image", "document"):
            source = block.get("source") or {}
            if fault := fault_of_data(source.get("media_type"), source.get("data")):
                return Fail(400, message=f"{at}.{number}.{block['type']}.source.base64: {fault}")
    return None


def _refused_call(block: Mapping[str, Any], role: str, ids: Sequence[str], at: str) -> Fail | None:
    if role != "assistant":
        return Fail(400, message=f"{at}: `tool_use` blocks can only be in `assistant` messages")
    if not isinstance(block.get("id"), str) or not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]):
        return Fail(400, message=f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if block["id"] in ids:
        return Fail(400, message="messages: `tool_use` ids must be unique")
    if not isinstance(block.get("input"), dict):
        return Fail(400, message=f"{at}.tool_use.input: Input should be a valid dictionary")
    return _refused_name(block.get("name"), f"{at}.tool_use.name")


def _refused_results(calls: Sequence[str], message: Mapping[str, Any], at: str) -> Fail | None:
    """Return the refusal unless a message first answers each call of the message before, once each."""
    blocks = message["content"] if isinstance(message["content"], list) else []
    answered = [block for block in blocks if block["type"] == "tool_result"]
    # https://github.com/tghamm/Anthropic.SDK/issues/184
    for block in answered:
        if message["role"] != "user" or block.get("tool_use_id") not in calls:
            return Fail(400, message=f"{at}.content: unexpected `tool_use_id` found in `tool_result` blocks")
    ids = [block["tool_use_id"] for block in answered]
    # https://github.com/anthropics/claude-code/issues/6575; results come first:
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls
    if sorted(ids) != sorted(calls) or blocks[: len(answered)] != answered:
        return _unanswered(calls, at)
    return None


def _unanswered(calls: Sequence[str], at: str) -> Fail:
    text = f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(calls)}."
    return Fail(400, message=f"{at}: {text} Each `tool_use` block must have a corresponding `tool_result` block.")
