"""The conversion of messages to turns of the Messages API, well-formed even if the history has gaps.

The rules that the API checks: each tool call is answered in the very next turn, which has its results before its text,
and no other result exists (https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls); an id is
used once and matches ``[a-zA-Z0-9_-]+``; no text is blank (https://github.com/anthropics/claude-code/issues/23440); the
last turn is the user's (https://platform.claude.com/docs/en/api/errors#prefill-not-supported), and so is the first.

A model's thoughts are sent back unchanged with the reply that they led to
(https://platform.claude.com/docs/en/build-with-claude/thinking#preserving-thinking-blocks), and only if all earlier
messages are unchanged. Otherwise newer models refuse the thoughts, and a reply without them is accepted
(https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Literal, TypeAlias

from channels import Media
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

__all__ = ["THOUGHTS", "Conversation"]

THOUGHTS = frozenset({"thinking", "redacted_thinking"})

_BEFORE = "(What was said before is left out.)"
_NO_TEXT = "(a message without text)"
_GO_ON = "(Go on.)"

_Blocks: TypeAlias = list[dict[str, Any]]


class Conversation:
    """The body of one call: `system`, `tools` and `turns`. Consecutive messages of one side form one turn.

    Results without their call are left out. Calls without a result get a note instead.
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
        """A hash of everything that is sent so far. A reply with thoughts is bound to it."""
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
        """Add a reply of the model, and the results of its calls right after it."""
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
        """Return the blocks of a reply, with its thoughts if all earlier turns are unchanged.

        The blocks are as the API gave them if the text and the calls of the reply are unchanged too. If they changed,
        the thoughts come first, unless the model had them after a part of the text. In all other cases, `said` is
        returned.
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

    https://platform.claude.com/docs/en/build-with-claude/vision, which advises to put pictures before the text, and
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
    """Return the same value, with "?" for a lone surrogate, which UTF-8 cannot hold."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
