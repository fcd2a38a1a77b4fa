"""Text with spans, and the splitting at a platform's limit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

SpanKind: TypeAlias = Literal["bold", "italic", "strike", "code", "pre", "quote", "link", "time", "day"]
"""``time`` is a time of day, and ``day`` a day with a time of day."""

TIME_SCHEME = "askfirst-time:"
_TIME = re.compile(rf"{TIME_SCHEME}(time|day)/([0-9]{{1,11}})")
_ZERO_WIDTH_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class Span:
    """A style of the text from character `start` to before character `end`."""

    kind: SpanKind
    start: int
    end: int
    value: str = ""
    """The address of a link, the language of a `pre`, or the Unix time of a `time` or `day`."""


@dataclass(frozen=True, slots=True)
class Styled:
    """The visible text without markup, and the spans over the text. Two spans nest or do not overlap."""

    text: str
    spans: tuple[Span, ...] = ()

    def cut(self, start: int, end: int) -> Styled:
        """Return the piece from `start` to before `end`, with the spans clipped to the piece."""
        if start == 0 and end == len(self.text):
            return self
        spans = (
            replace(span, start=max(span.start, start) - start, end=min(span.end, end) - start)
            for span in self.spans
            if span.start < end and span.end > start
        )
        return Styled(self.text[start:end], tuple(spans))


def time_link(written: str, at: datetime, *, with_day: bool) -> str:
    """Return the Markdown of a time in an exact reply: `written`, with the Unix time of `at` beside it."""
    return f"[{written}]({TIME_SCHEME}{'day' if with_day else 'time'}/{int(at.timestamp())})"


def time_of(address: str) -> tuple[Literal["time", "day"], int] | None:
    """Return the kind and the Unix time of a link made by `time_link`; None for the address of another link."""
    found = _TIME.fullmatch(address)
    if found is None:
        return None
    return ("day" if found[1] == "day" else "time"), int(found[2])


def with_times(styled: Styled) -> Styled:
    """Return the text with a span of its own for each time made by `time_link`."""
    spans = []
    for span in styled.spans:
        found = time_of(span.value) if span.kind == "link" else None
        spans.append(span if found is None else replace(span, kind=found[0], value=str(found[1])))
    return Styled(styled.text, tuple(spans))


def split(styled: Styled, limit: int, measure: Callable[[str], int] = len) -> list[Styled]:
    """Split a text into pieces that measure at most `limit` each. The joined texts of the pieces are the text.

    The cuts are between paragraphs, else lines, else words. A link or a piece of inline code stays whole if it fits
    into half a piece. `measure` counts as the platform does: characters, or UTF-16 units. Raises ValueError when
    `limit` is under 2.
    """
    if limit < 2:
        raise ValueError(f"nothing can be split at {limit}")
    pieces: list[Styled] = []
    start = 0
    while start < len(styled.text):
        end = _fitting(styled.text, start, limit, measure)
        if end < len(styled.text):
            end = _cut_before(styled, start, end)
        pieces.append(styled.cut(start, end))
        start = end
    return pieces


def _fitting(text: str, start: int, limit: int, measure: Callable[[str], int]) -> int:
    """Return the end of the longest piece from `start` that measures at most `limit`."""
    end = min(len(text), start + limit)
    while (excess := measure(text[start:end]) - limit) > 0:
        # A character measures at most two units, so half of the excess can be removed safely.
        end -= (excess + 1) // 2
    return end


def _cut_before(styled: Styled, start: int, end: int) -> int:
    """Return the best place to cut between the middle of the piece and the end of the piece."""
    text, middle = styled.text, start + (end - start) // 2
    for separator in ("\n\n", "\n", " "):
        found = text.rfind(separator, middle, end)
        while found > middle:
            cut = found + len(separator)
            if _whole_span_over(styled, cut) is None:
                return cut
            found = text.rfind(separator, middle, found)
    span = _whole_span_over(styled, end)
    if span is not None and span.start > middle:
        return span.start
    return _before_cluster(text, middle, end)


def _whole_span_over(styled: Styled, cut: int) -> Span | None:
    return next((s for s in styled.spans if s.kind in ("code", "link") and s.start < cut < s.end), None)


def _before_cluster(text: str, middle: int, end: int) -> int:
    """Return a cut at or before `end`, that separates no accent or joined emoji from its base character."""
    cut = end
    while cut > middle and (_joins(text[cut]) or text[cut - 1] == _ZERO_WIDTH_JOINER):
        cut -= 1
    return cut if cut > middle else end


def _joins(character: str) -> bool:
    return (
        character == _ZERO_WIDTH_JOINER
        or unicodedata.category(character) in ("Mn", "Me")
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
    )
