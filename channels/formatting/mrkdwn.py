"""Styled text in Slack's dialect. https://docs.slack.dev/messaging/formatting-message-text

Slack reads ``<...>`` as a link, a mention or a call to everybody. Only the links written here have a ``<``, the text
has none: nothing that a model or a person wrote can call anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from channels.formatting.styled import Span, SpanKind, Styled

__all__ = ["to_mrkdwn"]

_MARKS: dict[SpanKind, str] = {"bold": "*", "italic": "_", "strike": "~", "code": "`"}
_HOLDERS: dict[SpanKind, int] = {"pre": 0, "link": 1, "code": 2}
"""What holds no other marks; of two over the same text the first is shown."""
_LINKS = ("http://", "https://", "mailto:")
_LONGEST_ADDRESS = 1_000
"""Characters; a longer link is left out, its label stays."""
_BREAK = "\u200b"
"""A mark is one only at the edge of a word: within a word this makes an edge that nobody sees."""
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LINE = re.compile(r"\S(?:[^\n]*\S)?")
_CALL = re.compile(r"@(?=(?:here|channel|everyone|group)\b)", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s<>|`\"]*[^\s<>|`\".,:;!?'()\[\]*_~]")


def to_mrkdwn(styled: Styled) -> str:
    """The text with marks, in Slack's dialect.

    Addresses become links, so it is to be sent ``verbatim``: then Slack adds no links and no mentions of its own.
    """
    return "".join(_written(styled.text, 0, len(styled.text), list(_allowed(styled.spans))))


def _allowed(spans: Iterable[Span]) -> Iterable[Span]:
    """Without links that are none, and without what stands in a code block, a label or code: they hold no marks."""
    listed = [s for s in spans if s.kind != "link" or _is_address(s.value)]
    holders = [s for s in listed if s.kind in _HOLDERS]
    return (s for s in listed if not any(_holds(holder, s) for holder in holders))


def _holds(holder: Span, span: Span) -> bool:
    if (holder.start, holder.end) == (span.start, span.end):
        return _HOLDERS[holder.kind] < _HOLDERS.get(span.kind, len(_HOLDERS))
    return holder.start <= span.start and span.end <= holder.end


def _is_address(value: str) -> bool:
    return value.lower().startswith(_LINKS) and len(value) <= _LONGEST_ADDRESS


def _written(text: str, start: int, end: int, spans: list[Span]) -> Iterable[str]:
    """The text from `start` to before `end`, whose spans are given in the order of the text, outer ones first."""
    at = start
    while spans:
        span, *rest = spans
        inner = [s for s in rest if s.start < span.end]
        spans = rest[len(inner) :]
        yield _plain(text[at : span.start])
        yield from _shown(text, span, inner)
        at = span.end
    yield _plain(text[at:end])


def _shown(text: str, span: Span, inner: list[Span]) -> Iterable[str]:
    covered = text[span.start : span.end]
    match span.kind:
        case "pre":
            # Three backticks in it would end the block.
            return ("```\n", covered.translate(_ESCAPES).replace("```", f"``{_BREAK}`"), "\n```")
        case "quote":
            written = "".join(_written(text, span.start, span.end, inner))
            return ("> ", written.replace("\n", "\n> "))
        case "link":
            # A label holds no other link and no line break; "|" would begin another.
            label = _words(covered).replace("\n", " ").replace("|", "¦")
            address = re.sub(r"[\s|]", lambda odd: f"%{ord(odd[0]):02X}", span.value).translate(_ESCAPES)
            return (f"<{address}|{label}>",)
        case "code":
            return _marked(text, span, (covered.translate(_ESCAPES).replace("`", "'"),))
        case _:
            return _marked(text, span, _written(text, span.start, span.end, inner))


def _marked(text: str, span: Span, inner: Iterable[str]) -> Iterable[str]:
    """Marks stand close to what they cover, on one line; white space goes outside."""
    mark = _MARKS[span.kind]
    if text[span.start - 1 : span.start].isalnum():
        yield _BREAK
    yield _LINE.sub(lambda line: f"{mark}{line[0]}{mark}", "".join(inner))
    if text[span.end : span.end + 1].isalnum():
        yield _BREAK


def _plain(text: str) -> str:
    """Text between the marks: its addresses are links, and ``@here`` is a word."""
    pieces: list[str] = []
    done = 0
    for found in _ADDRESS.finditer(text):
        if len(found[0]) > _LONGEST_ADDRESS:
            continue
        pieces += (_words(text[done : found.start()]), f"<{found[0].translate(_ESCAPES)}>")
        done = found.end()
    return "".join((*pieces, _words(text[done:])))


def _words(text: str) -> str:
    return _CALL.sub("@\u2060", text.translate(_ESCAPES))
