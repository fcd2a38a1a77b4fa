"""The dialects of platforms that accept only text: plain text, and text with WhatsApp's marks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

from channels.formatting.styled import Span, SpanKind, Styled

__all__ = ["label", "to_plain", "to_whatsapp"]

_WHATSAPP: Mapping[SpanKind, str] = {"bold": "*", "italic": "_", "strike": "~", "code": "`", "pre": "```"}
"""https://faq.whatsapp.com/539178204879377."""
_LITERAL_MARK = re.compile(r"[*~`]|_(?![A-Za-z0-9])|(?<![A-Za-z0-9])_")
"""Characters that WhatsApp may read as a mark. It does not read an underscore within a word as one."""

_WORD = re.compile(r"[\w.+-]*")
_LONGEST_LABEL = 40


def to_plain(styled: Styled) -> str:
    """Return the text with link addresses written out and quoted lines marked by ``> ``."""
    return _written(styled, {})


def to_whatsapp(styled: Styled, *, exact: bool = False) -> str:
    """Return the text as `to_plain` does, with WhatsApp's marks around bold, italic, strike-through and code.

    `exact`: escape these characters in the text itself, because WhatsApp would remove them as marks.
    """
    return _written(_without_marks(styled) if exact else styled, _WHATSAPP)


def label(name: str) -> str:
    """Return the name of a file as a label: in quotes unless it is one word, shortened when it is long."""
    if len(name) > _LONGEST_LABEL:
        name = f"{name[: _LONGEST_LABEL - 16]}…{name[-15:]}"
    if _WORD.fullmatch(name):
        return name
    read = "".join(char if char.isprintable() else "_" for char in name)
    return f"“{re.sub('[“”]', chr(39), read)}”"


def _without_marks(styled: Styled) -> Styled:
    """Return the text with its own mark characters escaped, and the spans moved accordingly."""
    marks = list(_LITERAL_MARK.finditer(styled.text))
    if not marks:
        return styled
    escaped = [f"\\u{ord(mark[0]):04x}" for mark in marks]
    ends = [mark.end() for mark in marks]
    grown = [0, *accumulate(len(escape) - 1 for escape in escaped)]

    def moved(at: int) -> int:
        return at + grown[bisect_right(ends, at)]

    spans = [replace(span, start=moved(span.start), end=moved(span.end)) for span in styled.spans]
    found = iter(escaped)
    return Styled(_LITERAL_MARK.sub(lambda _: next(found), styled.text), tuple(spans))


def _written(styled: Styled, marks: Mapping[SpanKind, str]) -> str:
    text = styled.text
    # (position, 0 for an end and 1 for a beginning, order of inner and outer marks, text)
    inserts: list[tuple[int, int, int, str]] = []
    for depth, span in enumerate(styled.spans):
        if span.kind == "link" and span.value not in (label := text[span.start : span.end], f"mailto:{label}"):
            inserts.append((span.end, 0, -depth, f" ({span.value})"))
        elif span.kind == "quote":
            starts = [span.start, *(at + 1 for at in range(span.start, span.end) if text[at] == "\n")]
            inserts += [(at, 1, -1, "> ") for at in starts]
        elif mark := marks.get(span.kind):
            for start, end in _marked(text, span, mark):
                inserts += [(start, 1, depth, mark), (end, 0, -depth, mark)]
    pieces: list[str] = []
    done = 0
    for at, _, _, insert in sorted(inserts):
        pieces += (text[done:at], insert)
        done = at
    return "".join((*pieces, text[done:]))


def _marked(text: str, span: Span, mark: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a span that can carry the mark: whole words of one line, or a code block.

    A text that holds the mark character itself gets no mark.
    """
    if span.kind == "pre":
        lines = [(span.start, span.end)]
    else:
        breaks = [at for at in range(span.start, span.end) if text[at] == "\n"]
        lines = list(zip([span.start, *(at + 1 for at in breaks)], [*breaks, span.end], strict=True))
    for start, end in lines:
        shown = text[start:end]
        first, last = end - len(shown.lstrip()), start + len(shown.rstrip())
        within_a_word = text[max(0, first - 1) : first].isalnum() or text[last : last + 1].isalnum()
        if first < last and mark not in shown and (span.kind == "pre" or not within_a_word):
            yield first, last
