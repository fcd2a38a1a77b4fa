"""Templates over a tool's arguments: text with plain names in braces."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from string import Formatter

from channels import Json
from gateway.tools.escape import shown

__all__ = ["Template", "as_text"]


class Template:
    """A text with ``{name}`` fields, checked when the tool is defined.

    Attributes, indexes, conversions and format specifications are refused. A value is shown whole, since a rounded or
    cut one would not be the value that the tool is called with. ``{{`` stands for a brace.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Raises ValueError when `text` is not a template, or has a field that is not in `names`."""
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
                from difflib import get_close_matches  # imported only after an error

                close = get_close_matches(name, names, n=1)
                hint = f"did you mean {{{close[0]}}}?" if close else f"it can use: {', '.join(sorted(names)) or 'none'}"
                raise ValueError(f"{text!r} names {{{name}}}, which is not an argument: {hint}")
        self.text = text
        self._pieces = tuple((literal, name) for literal, name, _, _ in pieces)

    def render(self, texts: Mapping[str, str]) -> str:
        """Return the template with each name replaced by its text."""
        return "".join(literal + ("" if name is None else texts[name]) for literal, name in self._pieces)

    def sentence(self, values: Mapping[str, Json]) -> str:
        """Return the template for a person. Texts among the values are quoted, and all values are escaped."""
        return self.render({name: shown(values[name], bare=False) for _, name in self._pieces if name is not None})


def as_text(value: Json) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
