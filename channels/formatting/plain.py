"""The dialect of platforms that show nothing but text."""

from __future__ import annotations

from channels.formatting.styled import Styled

__all__ = ["to_plain"]


def to_plain(styled: Styled) -> str:
    """The text with link addresses written out and quoted lines marked by ``> ``."""
    text = styled.text
    inserts: list[tuple[int, str]] = []
    for span in styled.spans:
        if span.kind == "link" and span.value not in (label := text[span.start : span.end], f"mailto:{label}"):
            inserts.append((span.end, f" ({span.value})"))
        elif span.kind == "quote":
            inserts.append((span.start, "> "))
            inserts += [(at + 1, "> ") for at in range(span.start, span.end) if text[at] == "\n"]
    pieces: list[str] = []
    done = 0
    for at, insert in sorted(inserts):
        pieces += (text[done:at], insert)
        done = at
    return "".join((*pieces, text[done:]))
