"""Text for a terminal."""

from __future__ import annotations

from channels.formatting import read_markdown, to_plain

__all__ = ["from_markdown", "visible"]


def visible(text: str) -> str:
    """The text with control and direction characters written out: nothing in it steers the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def from_markdown(text: str) -> str:
    """Markdown as plain lines."""
    return "\n".join(visible(line) for line in to_plain(read_markdown(text)).split("\n"))
