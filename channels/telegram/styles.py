"""Styled text as Telegram's message entities.

https://core.telegram.org/bots/api#formatting-options: entities nest fully or do not touch; `pre` and `code` neither
hold other entities nor lie in them. Text with entities needs no parse mode, so no character can be misread as markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from channels.formatting import Span, Styled
from channels.replies import Json

__all__ = ["to_entities", "utf16_length"]

_MOST_ENTITIES = 100
"""Telegram ignores further entities (telegram.constants.MessageLimit.MESSAGE_ENTITIES)."""
_LINKS = ("http://", "https://", "mailto:", "tg://user?id=")
_TYPES = {
    "bold": "bold",
    "italic": "italic",
    "strike": "strikethrough",
    "code": "code",
    "pre": "pre",
    "quote": "blockquote",
    "link": "text_link",
}


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def to_entities(styled: Styled) -> list[Json]:
    """Return at most 100 MessageEntity objects, in the order of the text."""
    return [_entity(styled.text, span) for span in islice(_allowed(styled), _MOST_ENTITIES)]


def _allowed(styled: Styled) -> Iterator[Span]:
    """Yield the spans that may overlap. Precedence: code blocks, then links and quotes, then inline code."""
    spans = [s for s in styled.spans if s.kind != "link" or s.value.lower().startswith(_LINKS)]
    blocks = [s for s in spans if s.kind == "pre"]
    holders = [s for s in spans if s.kind in ("link", "quote")]
    codes = [s for s in spans if s.kind == "code" and not any(h.start < s.end and s.start < h.end for h in holders)]
    for span in spans:
        match span.kind:
            case "pre" | "link":
                yield span
            case "code":
                if span in codes:
                    yield span
            case "quote":
                yield from _around(styled.text, span, blocks)
            case _:
                yield from _around(styled.text, span, [*blocks, *codes])


def _around(text: str, span: Span, holes: list[Span]) -> Iterator[Span]:
    """Yield the pieces of a span outside of the holes, without white space at their ends."""
    start = span.start
    for hole in sorted(holes, key=lambda hole: hole.start):
        if hole.end <= span.start or span.end <= hole.start:
            continue
        yield from _trimmed(text, replace(span, start=start, end=hole.start))
        start = hole.end
    yield from _trimmed(text, replace(span, start=start))


def _trimmed(text: str, span: Span) -> Iterator[Span]:
    covered = text[span.start : span.end]
    start = span.start + len(covered) - len(covered.lstrip())
    end = span.start + len(covered.rstrip())
    if start < end:
        yield replace(span, start=start, end=end)


def _entity(text: str, span: Span) -> Json:
    entity: dict[str, Json] = {
        "type": _TYPES[span.kind],
        "offset": utf16_length(text[: span.start]),
        "length": utf16_length(text[span.start : span.end]),
    }
    if span.value:
        entity["url" if span.kind == "link" else "language"] = span.value
    return entity
