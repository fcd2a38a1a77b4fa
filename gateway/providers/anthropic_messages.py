"""Our messages as turns of the Messages API: always well-formed, whatever the history has lost.

The rules the API checks: each tool call is answered in the very next turn, whose results come before its text, and no
other result exists (https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls); an id is used
once and matches ``[a-zA-Z0-9_-]+``; no text is blank
(https://github.com/anthropics/claude-code/issues/23440); the last turn is the user's
(https://platform.claude.com/docs/en/api/errors#prefill-not-supported), and so is the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from gateway.providers.base import ModelMessage
from gateway.providers.history import NO_RESULT, event_text, plain_text, results_in, said_text, tool_name

__all__ = ["turns"]

_BEFORE = "(What was said before is left out.)"
_NO_TEXT = "(a message without text)"
_GO_ON = "(Go on.)"


def turns(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """The turns of one call. Results whose call is gone are left out; calls without a result get a note instead."""
    conversation = _Conversation()
    for index, message in enumerate(messages):
        match message.role:
            case "event":
                conversation.add("user", _text(event_text(message)))
            case "user":
                conversation.add("user", _text(said_text(message)) or _text(_NO_TEXT))
            case "assistant":
                conversation.add_assistant(message, results_in(messages[index + 1 :]))
    if conversation.speaker != "user":
        conversation.add("user", _text(_GO_ON))
    return conversation.turns


class _Conversation:
    """Turns as they are put together: what one side says in a row is one turn."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []
        self._ids: set[str] = set()

    @property
    def speaker(self) -> str | None:
        return self.turns[-1]["role"] if self.turns else None

    def add(self, role: Literal["user", "assistant"], blocks: Sequence[dict[str, Any]]) -> None:
        if not blocks:
            return
        if role == "assistant" and not self.turns:
            self.add("user", _text(_BEFORE))
        if role == self.speaker:
            self.turns[-1]["content"].extend(blocks)
        else:
            self.turns.append({"role": role, "content": list(blocks)})

    def add_assistant(self, message: ModelMessage, results: dict[str, list[str]]) -> None:
        """What the model said, and the results of its calls right after it."""
        called: list[dict[str, Any]] = []
        answered: list[dict[str, Any]] = []
        for call in message.tool_calls:
            id_ = self._new_id(call.call_id)
            called.append(
                {"type": "tool_use", "id": id_, "name": tool_name(call.name), "input": _json(dict(call.args))}
            )
            recorded = results.get(call.call_id)
            answered.append(_result(id_, recorded.pop(0) if recorded else NO_RESULT))
        self.add("assistant", [*_text(plain_text(message.content)), *called])
        self.add("user", answered)

    def _new_id(self, call_id: str) -> str:
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) or call_id in self._ids:
            call_id = next(free for n in range(len(self._ids) + 1) if (free := f"call_{n}") not in self._ids)
        self._ids.add(call_id)
        return call_id


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _result(id_: str, content: str) -> dict[str, Any]:
    """A blank result is one without content."""
    result = {"type": "tool_result", "tool_use_id": id_}
    return result | {"content": content} if content.strip() else result


def _json(args: dict[str, Any]) -> Any:
    """The same arguments, with "?" for half a surrogate pair, which UTF-8 cannot hold."""
    return json.loads(json.dumps(args, ensure_ascii=False).encode("utf-8", "replace"))
