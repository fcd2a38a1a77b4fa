"""The conversion of messages to Chat Completions messages, well-formed even if the history has gaps.

The rules that the API checks (https://platform.openai.com/docs/api-reference/chat/create): each tool call of an
assistant message has exactly one tool message, right after it, and no other tool message exists; ids have at most 40
characters; names match ``[a-zA-Z0-9_-]{1,64}``, also names that a model made up.

OpenAI's own models do not show their reasoning, and none of it is sent back. The `reasoning_content` of other servers'
models is sent back with a reply that calls tools: some refuse the results without it
(https://api-docs.deepseek.com/guides/thinking_mode).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.providers.base import ModelMessage, Request
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

__all__ = ["chat_messages"]

_MAX_CALL_ID = 40
"""The most characters of a call's id: https://github.com/vercel/ai/issues/5171"""


def chat_messages(request: Request, model: str) -> list[dict[str, Any]]:
    """Return the messages of one call.

    Results without their call are left out. Calls without a result get a note instead.
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
                chat.extend(_assistant(message, model, results_in(request.messages[index + 1 :])))
    if events:
        chat.append({"role": "user", "content": "\n\n".join(events)})
    return chat


def _said(message: ModelMessage, events: list[str], contents: Mapping[str, bytes]) -> str | list[dict[str, Any]]:
    """Return a person's message, behind the events before it.

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


def _assistant(message: ModelMessage, model: str, results: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    content = plain_text(message.content)
    if not message.tool_calls:
        if content:
            yield {"role": "assistant", "content": content}
        return
    ids: list[str] = []
    for number, call in enumerate(message.tool_calls):
        fits = call.call_id and len(call.call_id) <= _MAX_CALL_ID and plain_text(call.call_id) == call.call_id
        ids.append(call.call_id if fits and call.call_id not in ids else f"{number}_of_this_reply")
    echo = echoed(message, "openai", model) or {}
    yield {
        "role": "assistant",
        "content": content or None,
        **({"reasoning_content": plain_text(echo["reasoning_content"])} if "reasoning_content" in echo else {}),
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
