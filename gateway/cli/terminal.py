"""Text for a terminal, with control characters made visible."""

from __future__ import annotations

import json
from typing import Any

from channels.formatting import read_markdown, to_plain

_COLUMNS = 80
_ISOLATES = "\N{FIRST STRONG ISOLATE}\N{POP DIRECTIONAL ISOLATE}"


def visible(text: str) -> str:
    """Return the text with control and direction characters escaped. Escaped text cannot control the terminal."""
    return "".join(map(_written, text))


def json_text(value: Any) -> str:
    """Return the value as indented JSON. Printable characters stay unescaped; control characters are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def from_markdown(text: str) -> str:
    """Return Markdown as plain lines."""
    return lines(to_plain(read_markdown(text, columns=_COLUMNS)))


def lines(text: str) -> str:
    """Return a multi-line text with control characters escaped. Balanced direction isolates, for right-to-left text,
    stay."""
    return "\n".join(map(_line, text.split("\n")))


def _line(text: str) -> str:
    begun, ended = map(text.count, _ISOLATES)
    keep = _ISOLATES if begun == ended else ""  # an unbalanced isolate would affect the following lines
    return "".join(char if char in keep else _written(char) for char in text)


def _written(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()
