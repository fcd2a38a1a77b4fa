"""What Slack refuses in a message, and by which error.

https://docs.slack.dev/reference/block-kit/blocks, .../block-elements, .../reference/methods/chat.postMessage#errors
"""

from __future__ import annotations

from typing import Any

__all__ = ["Refused", "check_message"]

TEXT, BLOCKS, SECTION, ELEMENTS, LABEL, VALUE, ACTION_ID = 40_000, 50, 3_000, 25, 75, 2_000, 255
ALL_BLOCKS = 13_200  # https://github.com/slackapi/bolt-js/issues/2509


class Refused(Exception):
    """The method answers with this error."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


def check_message(arguments: dict[str, Any]) -> None:
    """Raises Refused."""
    text, blocks = arguments.get("text") or "", arguments.get("blocks") or []
    if not text and not blocks:
        raise Refused("no_text")
    if len(text) > TEXT:
        raise Refused("msg_too_long")
    if not isinstance(blocks, list) or len(blocks) > BLOCKS:
        raise Refused("invalid_blocks")
    if sum(_block(block) for block in blocks) > ALL_BLOCKS:
        raise Refused("msg_blocks_too_long")


def _block(block: dict[str, Any]) -> int:
    """Its characters."""
    match block.get("type"):
        case "section":
            _within(block["text"]["text"], SECTION)
            return len(block["text"]["text"])
        case "actions":
            elements = block["elements"]
            if not 1 <= len(elements) <= ELEMENTS:
                raise Refused("invalid_blocks")
            if len({element["action_id"] for element in elements}) < len(elements):
                raise Refused("invalid_blocks")
            for element in elements:
                _button(element)
            return 0
        case _:
            raise Refused("invalid_blocks")


def _button(element: dict[str, Any]) -> None:
    if element["type"] != "button" or element["text"]["type"] != "plain_text":
        raise Refused("invalid_blocks")
    if element.get("style", "primary") not in ("primary", "danger"):
        raise Refused("invalid_blocks")
    _within(element["text"]["text"], LABEL)
    _within(element["value"], VALUE)
    _within(element["action_id"], ACTION_ID)


def _within(text: str, limit: int) -> None:
    if not 1 <= len(text) <= limit:
        raise Refused("invalid_blocks")
