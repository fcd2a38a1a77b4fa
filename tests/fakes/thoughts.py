"""What the stand-in for Anthropic's server has thought, and what it wants back of it.

As strict as the vendor is to any of its models: what was thought comes back as it was, in the reply whose calls are
being answered (https://platform.claude.com/docs/en/build-with-claude/thinking#preserving-thinking-blocks), and not
behind a system prompt, tools or messages other than those it was thought for
(https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakes.model_server import Fail

__all__ = ["THOUGHTS", "Thoughts"]

THOUGHTS = {"thinking", "redacted_thinking"}

# The vendor's words: https://github.com/anomalyco/opencode/issues/3077, /anthropics/claude-code/issues/19539 and
# /pydantic/pydantic-ai/issues/7984.
_MISSING = (
    "Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` "
    "message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
)
_CHANGED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)
_BOUND = "The block is bound to a different conversation. Remove the block, or set `prefix_mismatch_behavior`."


@dataclass(frozen=True)
class _Reply:
    before: str
    """The model, and all it was sent."""
    thoughts: Sequence[Mapping[str, Any]]


class Thoughts:
    """Those of one server."""

    def __init__(self) -> None:
        self._replies: dict[str, _Reply] = {}
        """By the id of each call in it, and by the signature of each thought."""

    def remember(self, body: Mapping[str, Any], blocks: Sequence[dict[str, Any]]) -> None:
        """Sign what is thought in a reply to this request."""
        thoughts = [block for block in blocks if block["type"] in THOUGHTS]
        reply = _Reply(_before(body, len(body["messages"])), thoughts)
        for block in blocks:
            if block["type"] in THOUGHTS:
                block["signature" if block["type"] == "thinking" else "data"] = f"c2lnbmVk{len(self._replies):04}"
            if name := _name(block):
                self._replies[name] = reply

    def refused(self, body: Mapping[str, Any]) -> Fail | None:
        """The error with which the real server refuses a well-formed request."""
        messages = body["messages"]
        for index, message in enumerate(messages):
            if message["role"] == "assistant" and isinstance(message["content"], list):
                at, before = f"messages.{index}", _before(body, index)
                if refused := self._refused_message(at, message["content"], before, last=index == len(messages) - 2):
                    return refused
        return None

    def _refused_message(self, at: str, blocks: Sequence[Any], before: str, *, last: bool) -> Fail | None:
        if blocks and blocks[-1]["type"] in THOUGHTS:
            # https://github.com/tailcallhq/forgecode/issues/2107
            return Fail(400, message=f"{at}: The final block in an assistant message cannot be `thinking`.")
        thoughts = [block for block in blocks if block["type"] in THOUGHTS]
        called = [reply for block in blocks if (reply := self._replies.get(_name(block)))]
        wanted = called[-1].thoughts if last and called and called[-1].before == before else thoughts
        if wanted and not thoughts:
            return Fail(400, message=f"{at}.content.0.type: {_MISSING.format(blocks[0]['type'])}")
        for thought in thoughts:
            reply = self._replies.get(_name(thought))
            if reply is None or thought not in reply.thoughts:
                return Fail(400, message=f"{at}.content.0: Invalid `signature` in `thinking` block")
            if reply.before != before:
                return Fail(400, message=f"{at}.content.0: Invalid `signature` in `thinking` block. {_BOUND}")
        return None if thoughts == wanted else Fail(400, message=f"{at}.content.0: {_CHANGED}")


def _name(block: Mapping[str, Any]) -> str:
    return str(block.get("signature") or block.get("data") or block.get("id") or "")


def _before(body: Mapping[str, Any], index: int) -> str:
    return json.dumps([body["model"], body.get("system"), body.get("tools"), body["messages"][:index]])
