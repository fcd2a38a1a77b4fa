"""The dialects of text-only platforms: plain text, and text with WhatsApp's marks."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

from channels.formatting.styled import Span, SpanKind, Styled

_WHATSAPP: Mapping[SpanKind, str] = {"bold": "*", "italic": "_", "strike": "~", "code": "`", "pre": "```"}
"""https://faq.whatsapp.com/539178204879377."""
_LITERAL_MARK = re.compile(r"[*~`]|_(?![A-Za-z0-9])|(?<![A-Za-z0-9])_")
"""Characters that WhatsApp may read as a mark. An underscore within a word is no mark."""

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
    """Return the name of a file as a label: in quotes unless a single word, shortened if long."""
    if len(name) > _LONGEST_LABEL:
        name = f"{name[: _LONGEST_LABEL - 16]}…{name[-15:]}"
    if _WORD.fullmatch(name):
        return name
    read = "".join(char if char.isprintable() else "_" for char in name)
    return f"“{re.sub('[“”]', chr(39), read)}”"


def _without_marks(styled: Styled) -> Styled:
    """Return the text with all mark characters escaped, and the spans moved accordingly."""
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
    """Yield the ranges of a span that can carry the mark: whole words of a single line, or a code block.

    A text containing the mark character itself gets no mark.
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


GSM = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà^{}\\[~]|€"
)
"""GSM 03.38 with the extension. A character of the extension counts twice."""

# Look-alikes in the GSM 03.38 alphabet: one character outside of it makes a whole message more than twice as expensive.
# Letters are never changed, so a text in another alphabet stays as it is.
_FOLDED = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u0060\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2022\u00b7", "-"),
        **dict.fromkeys("\u00a0\u2007\u2008\u2009\u200a\u202f\u3000\t", " "),
        **dict.fromkeys("\u200b\u2060\ufeff\u00ad"),
        "\u2026": "...",
        "\u2192": "->",
        "\u23ce": "\\n",
        "\u00d7": "x",
    }
)

_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u23ce": "\\n", "\u2068": None, "\u2069": None})
_BULLET = re.compile(r"^( *)\u2022 ", re.MULTILINE)


def fold_to_gsm(text: str) -> str:
    """Return the text with the typographic quotes, dashes, spaces and dots of a plain keyboard."""
    return text.translate(_FOLDED)


def fold_quotes(text: str) -> str:
    """Return the text with the signs around values made cheap to send. The values stay unchanged.

    The signs are quotes, the sign for a new line, isolates and the bullets of lists. In values these signs are escaped.
    """
    return _BULLET.sub(r"\1- ", text.translate(_QUOTES))


def drop_dear_accents(text: str) -> str:
    """Return the text without the accents of letters outside GSM 03.38, as people write on a plain phone.

    For the gateway's own texts. A text of a person or a tool is sent unchanged.
    """
    return "".join(map(_cheap, text))


def _cheap(char: str) -> str:
    base = unicodedata.normalize("NFD", char)[0]
    return base if char not in GSM and base in GSM else char
