"""Tool calls as text, for models without native calls: ``TOOL_CALL {"tool_name": ..., "parameters": {...}}``."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from gateway.providers.base import KnowsModels, ModelMessage, Provider, Request, Response, ToolCall, ToolSpec
from gateway.providers.calls import fault_of, no_constant
from gateway.providers.completing import pieces_of
from gateway.providers.history import NO_RESULT, results_in

MOST_CHARACTERS: Final = 8_000
"""The most characters of the JSON of a call. A longer call is not parsed."""

_MARKER: Final = "TOOL_CALL"
_BEGIN = re.compile(rf"{_MARKER}:?\s*+(?:```[a-z]*+\s*+)?+(?=\{{)")
"""The marker and an optional code fence, right before a JSON object."""
_MAY_BE_BEGIN = re.compile(rf"{_MARKER}:?\s*+(?:``?|```[a-z]*+\s*+)?")
_DECODER = json.JSONDecoder(parse_constant=no_constant)

_CONTRACT = f"""\
To call a tool, end your reply with {_MARKER} and one JSON object with tool_name and parameters, such as:
{_MARKER} {{"tool_name": "a_tool", "parameters": {{"a_parameter": "a value"}}}}
Then stop: the result comes in the next message.
- Call one tool at a time. Write {_MARKER} only to call a tool.
- Include every required parameter. Ask for missing details, do not guess them.
- Do not invent results: wait for them before the final answer.
- The JSON object has at most {MOST_CHARACTERS} characters.

Available tools (JSON schema)
"""


class TextCallsProvider:
    """A provider for a model without native tool calls: another provider carries the calls and the results as text.

    A reply holds at most one call. The text behind the call is dropped, because the model wrote it without the result.
    """

    def __init__(self, provider: Provider) -> None:
        self.name = provider.name
        self._provider = provider

    @property
    def identity(self) -> str:
        """The inner provider, for the keys of a cache."""
        return f"text+{getattr(self._provider, 'identity', self.name)}"

    async def complete(self, request: Request) -> Response:
        """Return the reply with the call in its text. Raises ProviderError."""
        return _with_call(await self._provider.complete(_as_text(request)), _call_id(request))

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield the reply as Provider.stream does, without the text of a call."""
        shown = _ShownText()
        async with aclosing(pieces_of(self._provider, _as_text(request), None)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Response):
                    if rest := shown.rest():
                        yield rest
                    yield _with_call(piece, _call_id(request))
                elif text := shown.add(piece):
                    yield text

    async def knows(self, model: str | None = None, *, timeout_seconds: float) -> bool:
        """Look up the model, as KnowsModels.knows does."""
        provider = self._provider
        return isinstance(provider, KnowsModels) and await provider.knows(model, timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        """Close the other provider."""
        await self._provider.close()


def call_in(text: str, call_id: str) -> tuple[str, ToolCall | None]:
    """Return the text before the first call, and the call; the whole text and None if the text calls no tool.

    Only a JSON object right behind the marker is a call. Unreadable JSON gives a call with a `parse_error`.
    """
    begin = _BEGIN.search(text)
    if begin is None:
        return text, None
    return text[: begin.start()].rstrip(), _parsed(text[begin.end() : begin.end() + MOST_CHARACTERS + 1], call_id)


def _parsed(text: str, call_id: str) -> ToolCall:
    try:
        value: dict[str, Any] = _DECODER.raw_decode(text[:MOST_CHARACTERS])[0]
    except (ValueError, RecursionError) as error:
        is_cut = len(text) > MOST_CHARACTERS
        fault = f"no JSON object within {MOST_CHARACTERS} characters" if is_cut else fault_of(error)
        return ToolCall(call_id=call_id, name=_NO_NAME, parse_error=fault)
    name = next((value[key] for key in ("tool_name", "tool", "name") if key in value), None)
    args: Any = next((value[key] for key in ("parameters", "params") if key in value), {})
    if not isinstance(name, str) or not name:
        return ToolCall(call_id=call_id, name=_NO_NAME, parse_error="tool_name is missing")
    if not isinstance(args, dict):
        return ToolCall(call_id=call_id, name=name, parse_error="parameters is not a JSON object")
    return ToolCall(call_id=call_id, name=name, args=args)


_NO_NAME = "unknown"
"""The name of a call without a name."""


def _with_call(response: Response, call_id: str) -> Response:
    """Return a reply with the call taken out of the text. A cut-off reply stays cut off."""
    if response.finish == "refused":
        return response
    content, call = call_in(response.content, call_id)
    if call is None:
        return response
    called = replace(response, content=content, tool_calls=(call,), echo=None)
    return called if response.finish == "length" else replace(called, finish="tools")


class _ShownText:
    """The visible part of a streamed text: ends before a call, and holds back a possible start of a call."""

    def __init__(self) -> None:
        self._waits = ""
        self._calls = False

    def add(self, piece: str) -> str:
        """Add a piece, and return the text now safe to show."""
        if self._calls:
            return ""
        self._waits += piece
        if begin := _BEGIN.search(self._waits):
            self._calls = True
            return self._waits[: begin.start()].rstrip()
        end = _end_of_settled(self._waits)
        shown, self._waits = self._waits[:end], self._waits[end:]
        return shown

    def rest(self) -> str:
        """Return the held text at the end of the stream."""
        return "" if self._calls else self._waits


def _end_of_settled(text: str) -> int:
    """Return the length of the text independent of the next piece: a call may begin behind this part."""
    at = text.rfind(_MARKER)
    if at < 0 or _MAY_BE_BEGIN.fullmatch(text, at) is None:
        lengths = range(len(_MARKER) - 1, 0, -1)
        at = len(text) - next((length for length in lengths if text.endswith(_MARKER[:length])), 0)
    return len(text[:at].rstrip())


# ── the request ──


def _as_text(request: Request) -> Request:
    """Return a request without native tools, calls and results: the contract follows the instructions."""
    messages = tuple(_written(request.messages))
    if not request.tools:
        return replace(request, messages=messages)
    contract = _CONTRACT + "\n".join(map(_schema, request.tools))
    system = "\n\n".join(filter(None, [request.system, contract]))
    return replace(request, system=system, messages=messages, tools=())


def _schema(tool: ToolSpec) -> str:
    schema = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return json.dumps(schema, ensure_ascii=False)


def _written(messages: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    """Yield the messages with calls as text. A result is an event: data of the gateway, and no person's words."""
    for index, message in enumerate(messages):
        if message.tool_calls:
            results = results_in(messages[index + 1 :])
            calls = [f"{_MARKER} {_payload(call)}" for call in message.tool_calls]
            yield replace(message, content="\n".join(filter(None, [message.content, *calls])), tool_calls=(), echo=None)
            for call in message.tool_calls:
                recorded = results.get(call.call_id)
                text = recorded.pop(0) if recorded else NO_RESULT
                yield ModelMessage(role="event", content=f"Result of {call.name}:\n{text}")
        elif message.role != "tool":
            yield message


def _payload(call: ToolCall) -> str:
    return json.dumps({"tool_name": call.name, "parameters": dict(call.args)}, ensure_ascii=False)


def _call_id(request: Request) -> str:
    """Return the id of the reply's call. The id depends on the request alone, so a repetition gives the same id."""
    return f"text_{len(request.messages)}"
