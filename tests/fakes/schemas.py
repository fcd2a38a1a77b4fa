"""The refusals of the vendors' servers for the JSON Schema of an answer."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakes.model_server import Fail

# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas,
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations
_REFUSED = {"allOf", "not", "if", "then", "else", "patternProperties", "prefixItems", "oneOf", "minLength", "maxLength"}


def fault_of_schema(schema: Any) -> str | None:
    """Return a vendor's first reason to refuse the schema of an answer; None if accepted."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "schema must be a JSON Schema of 'type: \"object\"'"
    for each in _parts(schema):
        if refused := sorted(_REFUSED & each.keys()):
            return f"'{refused[0]}' is not permitted"
        if "$ref" in each and len(each) > 1:
            return "'$ref' cannot have keywords beside it"
        if each.get("type") == "object":
            if each.get("additionalProperties") is not False:
                return "'additionalProperties' is required to be supplied and to be false"
            if sorted(each.get("required", [])) != sorted(each.get("properties", {})):
                return "'required' is required to be an array including every key in properties"
    return None


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    several = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    for each in [*several, *([schema["items"]] if "items" in schema else [])]:
        yield from _parts(each)


# ── The vendors' refusals of a file in base64 ──


_BEGINS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF-",),
}
_LARGEST_IMAGE = 5 * 1024**2


def fault_of_data(mime_type: object, data: object) -> str | None:
    """Return the reason to refuse a file; None if accepted."""
    if not isinstance(mime_type, str) or mime_type not in _BEGINS:
        return "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
    try:
        content = base64.b64decode(str(data), validate=True)
    except binascii.Error:
        return "invalid base64 data"
    if not content.startswith(_BEGINS[mime_type]):
        return f"The image was specified using the {mime_type} media type, but the image appears to be another type"
    if mime_type != "application/pdf" and len(content) > _LARGEST_IMAGE:
        return f"image exceeds 5 MB maximum: {len(content)} bytes"
    return None


def fault_of_url(url: object) -> str | None:
    """Return the reason to refuse a file in a data URL; None if accepted."""
    head, _, data = str(url).partition(";base64,")
    return fault_of_data(head.removeprefix("data:"), data) if head.startswith("data:") else "Invalid image_url."


# ── The thoughts of the fake Anthropic server, and the check of the thoughts sent back ──


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
    """The model, and all sent messages."""
    thoughts: Sequence[Mapping[str, Any]]


class Thoughts:
    """The thoughts of one server."""

    def __init__(self) -> None:
        self._replies: dict[str, _Reply] = {}
        """Id of each call, and signature of each thought -> the reply."""

    def remember(self, body: Mapping[str, Any], blocks: Sequence[dict[str, Any]]) -> None:
        """Sign the thoughts in a reply to this request."""
        thoughts = [block for block in blocks if block["type"] in THOUGHTS]
        reply = _Reply(_before(body, len(body["messages"])), thoughts)
        for block in blocks:
            if block["type"] in THOUGHTS:
                block["signature" if block["type"] == "thinking" else "data"] = f"c2lnbmVk{len(self._replies):04}"
            if name := _name(block):
                self._replies[name] = reply

    def refused(self, body: Mapping[str, Any]) -> Fail | None:
        """Return the error of the real server for a well-formed request; None if accepted."""
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
