"""Templates over a tool's arguments: plain names in braces and nothing else."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from string import Formatter

from channels import Json

__all__ = ["Template", "as_text", "shown"]

_LONG = 120


class Template:
    """A text with ``{name}`` in it, checked when the tool is defined.

    Attributes, indexes, conversions and format specifications are refused: a value is shown as it is, since one that
    is rounded or cut open would not be the value the tool is called with. ``{{`` stands for a brace.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Raises ValueError when `text` is not such a template, or names something that is not in `names`."""
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a template: {error}; write {{{{ or }}}} for a brace") from None
        for _, name, spec, conversion in pieces:
            if name is None:
                continue
            if spec or conversion:
                raise ValueError(f"{text!r}: write {{{name}}} alone, without ':' or '!': values are shown as they are")
            if name not in names:
                from difflib import get_close_matches  # who is never wrong never needs it

                close = get_close_matches(name, names, n=1)
                hint = f"did you mean {{{close[0]}}}?" if close else f"it can use: {', '.join(sorted(names)) or 'none'}"
                raise ValueError(f"{text!r} names {{{name}}}, which is not an argument: {hint}")
        self.text = text
        self._pieces = tuple((literal, name) for literal, name, _, _ in pieces)

    def render(self, texts: Mapping[str, str]) -> str:
        """The template with each name replaced by its text."""
        return "".join(literal + ("" if name is None else texts[name]) for literal, name in self._pieces)


def as_text(value: Json) -> str:
    """Text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown(value: Json) -> str:
    """A value as a person may be shown it, on one line.

    Whatever is invisible or changes how its surroundings read (control, format and direction characters) becomes an
    escape, and a long value is cut in the middle, saying how long it is.
    """
    text = as_text(value)
    if len(text) > _LONG:
        half = _LONG // 2
        return f"{_visible(text[:half])} … ({len(text)}) … {_visible(text[-half:])}"
    return _visible(text)


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else f"\\u{ord(c):04x}" for c in text)
