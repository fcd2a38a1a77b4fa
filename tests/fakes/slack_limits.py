"""What Slack refuses in a message, and by which error.

https://docs.slack.dev/reference/block-kit/blocks, .../block-elements, .../reference/methods/chat.postMessage#errors
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Refused", "as_markdown", "check_message", "elements_of"]

TEXT, BLOCKS, ELEMENTS, LABEL, VALUE, ACTION_ID = 40_000, 50, 25, 75, 2_000, 255
UPDATED_TEXT = 4_000  # https://docs.slack.dev/reference/methods/chat.update#errors
ALL_BLOCKS = 13_200  # https://github.com/slackapi/bolt-js/issues/2509
MARKS = {"bold": "*", "italic": "_", "strike": "~", "code": "`"}
STYLES = {"text": set(MARKS), "link": {"bold", "italic", "strike"}}


class Refused(Exception):
    """The method answers with this error."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


def check_message(arguments: dict[str, Any], *, longest: int = TEXT) -> None:
    """Raises Refused."""
    text, blocks = arguments.get("text") or "", arguments.get("blocks") or []
    if not text and not blocks:
        raise Refused("no_text")
    if len(text) > longest:
        raise Refused("msg_too_long")
    if not isinstance(blocks, list) or len(blocks) > BLOCKS:
        raise Refused("invalid_blocks")
    for block in blocks:
        _check_block(block)
    if len(json.dumps(blocks, ensure_ascii=False)) > ALL_BLOCKS:
        raise Refused("msg_blocks_too_long")
    metadata = arguments.get("metadata")
    if metadata is not None and set(metadata) != {"event_type", "event_payload"}:
        raise Refused("invalid_metadata_format")


def elements_of(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every piece of text, link or mention in the rich text of a message."""
    rich = [block for block in blocks if block["type"] == "rich_text"]
    return [piece for block in rich for held in block["elements"] for piece in held["elements"]]


def as_markdown(blocks: list[dict[str, Any]]) -> str:
    """What a person sees, in marks: for a test to compare with."""
    held = (held for block in blocks if block["type"] == "rich_text" for held in block["elements"])
    return "\n".join(_written(element) for element in held)


def _written(held: dict[str, Any]) -> str:
    text = "".join(_piece(piece) for piece in held["elements"])
    match held["type"]:
        case "rich_text_quote":
            return "> " + text.replace("\n", "\n> ")
        case "rich_text_preformatted":
            return f"```{text}```"
        case _:
            return text


def _piece(piece: dict[str, Any]) -> str:
    match piece["type"]:
        case "user":
            return f"<@{piece['user_id']}>"
        case "link":
            text = f"<{piece['url']}|{piece['text']}>"
        case _:
            text = piece["text"]
    marks = "".join(MARKS[style] for style in piece.get("style", {}))
    return f"{marks}{text}{marks[::-1]}"


def _check_block(block: dict[str, Any]) -> None:
    match block.get("type"):
        case "rich_text":
            _sure(block["elements"])
            for held in block["elements"]:
                _sure(held["elements"])
                for piece in held["elements"]:
                    _check_piece(held["type"], piece)
        case "actions":
            elements = block["elements"]
            _sure(1 <= len(elements) <= ELEMENTS)
            _sure(len({element["action_id"] for element in elements}) == len(elements))
            for element in elements:
                _check_button(element)
        case _:
            raise Refused("invalid_blocks")


def _check_piece(held: str, piece: dict[str, Any]) -> None:
    kind = piece["type"]
    _sure(held in ("rich_text_section", "rich_text_quote", "rich_text_preformatted"))
    if kind == "user":
        _sure(held != "rich_text_preformatted")
        return
    _sure(kind in STYLES and bool(piece["text"]))
    _sure(set(piece.get("style", {})) <= STYLES[kind] and (held != "rich_text_preformatted" or "style" not in piece))
    if kind == "link":
        url = urlsplit(piece["url"])
        _sure(held != "rich_text_preformatted" and not re.search(r"\s", piece["url"]))
        _sure(bool(url.hostname) if url.scheme in ("http", "https") else url.scheme == "mailto" and bool(url.path))


def _check_button(element: dict[str, Any]) -> None:
    _sure(element["type"] == "button" and element["text"]["type"] == "plain_text")
    _sure(element.get("style", "primary") in ("primary", "danger"))
    for text, limit in ((element["text"]["text"], LABEL), (element["value"], VALUE), (element["action_id"], ACTION_ID)):
        _sure(1 <= len(text) <= limit)


def _sure(holds: object) -> None:
    if not holds:
        raise Refused("invalid_blocks")
