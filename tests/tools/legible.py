"""Reads back what a value was from what is shown of it, by rules of its own."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["read_value", "unescaped"]


def unescaped(shown: str) -> str:
    """The text of which `visible` made this; by SMS the sign of a new line is an escape too."""
    pieces: list[str] = []
    at = 0
    while (found := re.compile(r"\\+|⏎").search(shown, at)) is not None:
        pieces.append(shown[at : found.start()])
        at = found.end()
        if found[0] == "⏎":
            pieces.append("\n")
            continue
        run, behind = len(found[0]), shown[at : at + 1]
        if behind not in tuple("uUxn*_~`⏎"):
            pieces.append("\\" * run)
            continue
        pieces.append("\\" * (run // 2))
        if run % 2 and behind == "n":
            pieces.append("\n")
            at += 1
        elif run % 2 and behind != "⏎":
            digits = {"u": 4, "U": 8}[behind]
            pieces.append(chr(int(shown[at + 1 : at + 1 + digits], 16)))
            at += 1 + digits
    return "".join((*pieces, shown[at:]))


def read_value(shown: str) -> Any:
    """The value of which `shown` made this."""
    if shown.startswith("“"):
        assert shown.endswith("”") and not set("“”").intersection(shown[1:-1])
        return unescaped(shown[1:-1])
    written = re.sub(r'"([^"]*)"', lambda found: json.dumps(unescaped(found[1])), shown)
    try:
        return json.loads(written)
    except ValueError:
        return shown
