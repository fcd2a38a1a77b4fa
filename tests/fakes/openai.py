"""A server of OpenAI's Chat Completions with the real shapes, refusals and ways to fail.

Shapes: https://platform.openai.com/docs/api-reference/chat/object and /chat/streaming. Errors:
https://platform.openai.com/docs/guides/error-codes. The source of each check stands beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from openai.types.chat.completion_create_params import CompletionCreateParamsBase, CompletionCreateParamsStreaming

from tests.fakes.model_server import Answer, Break, Call, Fail, ModelServer, Raw, Say, cut, pieces, tokens
from tests.fakes.schemas import fault_of_schema, fault_of_url

__all__ = ["Answer", "Break", "Call", "Fail", "FakeOpenAI", "Raw", "Say", "refusal_of", "refused_name"]


class FakeOpenAI(ModelServer):
    """``model.url`` is for OPENAI_BASE_URL and ``model.key`` for OPENAI_API_KEY."""

    path = "/v1/chat/completions"

    def __init__(self, *, key: str = "sk-test-0123456789abcdef", port: int = 0) -> None:
        super().__init__(key=key, port=port)
        self._reasoned: dict[tuple[str, str], str] = {}
        """(model, id of each call in the reply) -> the reasoning."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.url += "/v1"
        return self

    def refused_headers(self, headers: Mapping[str, str]) -> Fail | None:
        given = headers.get("Authorization", "")
        if given == f"Bearer {self.key}":
            return None
        # The real answer repeats part of the key: https://github.com/chatanywhere/GPT_API_free/issues/62
        shown = given.removeprefix("Bearer ")
        return Fail(401, "invalid_api_key", message=f"Incorrect API key provided: {shown[:8]}***{shown[-4:]}.")

    def refused_body(self, body: Any) -> Fail | None:
        if refused := refusal_of(body):
            return refused
        for message in body["messages"]:
            ids = [call["id"] for call in message.get("tool_calls") or ()]
            wanted = [text for id_ in ids if (text := self._reasoned.get((body["model"], id_))) is not None]
            if wanted and message.get("reasoning_content") != wanted[0]:
                # DeepSeek's rule and words: https://github.com/anomalyco/opencode/issues/24722
                return Fail(400, message="The `reasoning_content` in the thinking mode must be passed back to the API.")
        return None

    def too_long(self, sent: int, taken: int) -> Fail:
        # https://github.com/vercel/ai/issues/428
        length = f"This model's maximum context length is {taken} tokens. However, your messages resulted in {sent}"
        return Fail(400, "context_length_exceeded", f"{length} tokens. Please reduce the length of the messages.")

    def error(self, fail: Fail) -> dict[str, Any]:
        kind = fail.type or ("server_error" if fail.status >= 500 else "invalid_request_error")
        return {"error": {"message": fail.message, "type": kind, "param": fail.param, "code": fail.code}}

    def whole(self, body: Mapping[str, Any], answer: Say, number: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": answer.refusal}
        if answer.thinks is not None:
            message["reasoning_content"] = answer.thinks
        if answer.calls:
            message["tool_calls"] = self._tool_calls(body, answer, number)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        return {**_head(body, "chat.completion", number), "choices": [choice], "usage": _usage(body, answer)}

    def events(self, body: Mapping[str, Any], answer: Say, number: int) -> Iterator[tuple[str | None, str]]:
        head = _head(body, "chat.completion.chunk", number)
        wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        if wants_usage:
            head["usage"] = None
        for delta in _deltas(answer, self._tool_calls(body, answer, number)):
            yield None, json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        last = {"index": 0, "delta": {}, "finish_reason": _finish(answer)}
        yield None, json.dumps({**head, "choices": [last]})
        if wants_usage:
            yield None, json.dumps({**head, "choices": [], "usage": _usage(body, answer)})
        yield None, "[DONE]"

    def _tool_calls(self, body: Mapping[str, Any], answer: Say, number: int) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        for index, call in enumerate(answer.calls):
            arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            function = {"name": call.name, "arguments": arguments}
            calls.append({"id": f"call_{number}_{index}", "type": "function", "function": function})
            if answer.thinks is not None:
                self._reasoned[body["model"], calls[-1]["id"]] = answer.thinks
        return calls


def _head(body: Mapping[str, Any], kind: str, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_760_000_000, "model": body["model"]}


def _finish(answer: Say) -> str:
    return answer.ends or ("tool_calls" if answer.calls else "stop")


def _usage(body: Mapping[str, Any], answer: Say) -> dict[str, Any]:
    """Count words as tokens. One token is read from the cache, another is written."""
    prompt = sum(tokens(str(message.get("content") or "")) for message in body["messages"])
    said = len(answer.text.split()) + sum(len(str(call.arguments).split()) for call in answer.calls)
    read = min(prompt, 1)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": min(prompt - read, 1)},
    }


def _deltas(answer: Say, calls: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the deltas of the real server: the role, a few characters a chunk, a call's head, then its arguments."""
    yield {"role": "assistant", "content": "", "refusal": None}
    if answer.thinks is not None:
        yield from ({"reasoning_content": piece} for piece in pieces(answer.thinks) or [""])
    yield from ({"content": piece} for piece in pieces(answer.text))
    if answer.refusal:
        yield {"refusal": answer.refusal}
    for index, call in enumerate(calls):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        for piece in cut(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


# The fields the vendor's own library knows.
_FIELDS = {*CompletionCreateParamsBase.__annotations__, *CompletionCreateParamsStreaming.__annotations__}
_ROLES = {"developer", "system", "user", "assistant", "tool", "function"}


def refusal_of(body: Any) -> Fail | None:
    """Return the error of the real server for this request; None if accepted."""
    if not isinstance(body, dict):
        return Fail(400, message="We could not parse the JSON body of your request.")
    if unknown := sorted(body.keys() - _FIELDS):
        return Fail(400, message=f"Unrecognized request argument supplied: {unknown[0]}")
    if not isinstance(body.get("model"), str) or not body["model"]:
        return Fail(400, message="you must provide a model parameter")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        return Fail(400, "empty_array", message="Invalid 'messages': empty array.", param="messages")
    return _refused_setting(body) or _refused_tools(body) or _refused_messages(body["messages"])


def _refused_setting(body: Mapping[str, Any]) -> Fail | None:
    if body.get("stream_options") is not None and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        return Fail(400, message=message, param="stream_options")
    # https://github.com/griptape-ai/ComfyUI-Griptape/issues/312
    if re.match(r"gpt-5|o\d", body["model"]) and body.get("max_tokens") is not None:
        message = "Unsupported parameter: 'max_tokens' is not supported with this model."
        return Fail(400, "unsupported_parameter", message=message, param="max_tokens")
    # https://github.com/glebm/i18n-tasks/issues/672
    if re.match(r"gpt-5|o\d", body["model"]) and body.get("temperature") not in (None, 1):
        message = "Unsupported value: 'temperature' does not support this with this model."
        return Fail(400, "unsupported_value", message=message, param="temperature")
    # https://platform.openai.com/docs/api-reference/chat/create#chat-create-temperature: between 0 and 2
    if not 0 <= (body.get("temperature") or 0) <= 2:
        return Fail(400, "decimal_above_max_value", message="Invalid 'temperature'.", param="temperature")
    answer = (body.get("response_format") or {}).get("json_schema")
    if answer is not None and (fault := fault_of_schema(answer["schema"])) is not None:
        message = f"Invalid schema for response_format '{answer['name']}': {fault}."
        return Fail(400, "invalid_json_schema", message=message, param="response_format")
    return None


def _refused_tools(body: Mapping[str, Any]) -> Fail | None:
    tools = body.get("tools")
    if tools is None:
        return None
    # https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools: at most 128 functions
    if not tools or len(tools) > 128:
        return Fail(
            400, "array_above_max_length" if tools else "empty_array", message="Invalid 'tools'.", param="tools"
        )
    for index, tool in enumerate(tools):
        at = f"tools[{index}]"
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            return Fail(400, "invalid_value", message=f"Invalid value: '{at}.type'.", param=f"{at}.type")
        if refused := refused_name(function.get("name"), f"{at}.function.name"):
            return refused
        parameters = function.get("parameters", {"type": "object"})
        if not isinstance(parameters, dict) or parameters.get("type") != "object":
            message = f"Invalid schema for function '{function['name']}': schema must be of type 'object'."
            return Fail(400, "invalid_function_parameters", message=message, param=f"{at}.function.parameters")
    return None


def refused_name(name: object, param: str) -> Fail | None:
    # https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools: a-z, A-Z, 0-9, _ and -, 64 at most
    if isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        return None
    return Fail(400, "invalid_value", message=f"Invalid '{param}': string does not match pattern.", param=param)


def _refused_messages(messages: Sequence[Any]) -> Fail | None:
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        at = f"messages[{index}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return Fail(400, "invalid_value", message=f"Invalid value: '{at}.role'.", param=f"{at}.role")
        role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
        if role == "tool":
            # https://github.com/microsoft/promptflow/pull/3130
            if message.get("tool_call_id") not in open_calls:
                text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                return Fail(400, message=f"Invalid parameter: {text}", param=f"{at}.role")
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return _unanswered(open_calls, at)
        if not isinstance(content, str | list) and not (role == "assistant" and content is None and calls):
            return Fail(400, message=f"Invalid value for 'content': expected a string, got {content!r}.", param=at)
        for part in content if isinstance(content, list) else ():
            url = (part.get("image_url") or {}).get("url") or (part.get("file") or {}).get("file_data")
            if part.get("type") in ("image_url", "file") and (fault := fault_of_url(url)):
                return Fail(400, "invalid_image_url", message=fault, param=at)
        if calls is not None:
            if role != "assistant" or not calls:
                return Fail(400, "empty_array", message=f"Invalid '{at}.tool_calls'.", param=f"{at}.tool_calls")
            if refused := _refused_calls(calls, at):
                return refused
            open_calls = [call["id"] for call in calls]
    return _unanswered(open_calls, f"messages[{len(messages)}]") if open_calls else None


def _refused_calls(calls: Sequence[Mapping[str, Any]], at: str) -> Fail | None:
    for number, call in enumerate(calls):
        param = f"{at}.tool_calls[{number}]"
        # https://github.com/vercel/ai/issues/5171: 40 characters at most
        if not isinstance(call.get("id"), str) or not 1 <= len(call["id"]) <= 40:
            return Fail(400, "string_above_max_length", message=f"Invalid '{param}.id'.", param=f"{param}.id")
        # https://github.com/agno-agi/agno/issues/5116
        if call["id"] in [other["id"] for other in calls[:number]]:
            message = f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call['id']}'."
            return Fail(400, message=message, param=f"{param}.id")
        if call.get("type") != "function" or not isinstance(call["function"].get("arguments"), str):
            return Fail(400, "invalid_value", message=f"Invalid value: '{param}'.", param=param)
        if refused := refused_name(call["function"].get("name"), f"{param}.function.name"):
            return refused
    return None


def _unanswered(calls: Sequence[str], at: str) -> Fail:
    # https://github.com/aliasrobotics/cai/issues/111
    message = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(calls)}"
    )
    return Fail(400, message=message, param=f"{at}.role")
