"""Styled text as Slack's rich text, the format of its own composer.

https://docs.slack.dev/reference/block-kit/blocks/rich-text-block

Slack shows the text of an element as it is: no character is markup, and a broadcast is an element of its own, which is
never built here. So no text of a model or a person can notify people, and a question reads as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import urlsplit

from channels.formatting import Span, SpanKind, Styled
from channels.replies import Json

__all__ = ["rich_text"]

_SECTION = "rich_text_section"
_HOLDERS: dict[SpanKind, str] = {"pre": "rich_text_preformatted", "quote": "rich_text_quote"}
_STYLES: dict[SpanKind, str] = {"bold": "bold", "italic": "italic", "strike": "strike", "code": "code", "pre": "code"}
_LONGEST_ADDRESS = 1_000
"""In characters. A longer link is left out, and its label stays."""
_ADDRESS = r"https?://[^\s<>|`\"]*[^\s<>|`\".,:;!?'()\[\]*_~]"
_LINK = re.compile(_ADDRESS)


def rich_text(styled: Styled, *, account: str | None = None) -> Json:
    """Return the text as one block. None when it has no visible character.

    With `account` a piece of code that is the written form of one of its people (``slack:T1:U7``) becomes a mention,
    which Slack shows as their name. A mention in a new message notifies the person. The same letters outside of code
    stay text, because any person may have written them.
    """
    writer = _Writer(styled, account)
    elements: list[Json] = []
    done = 0
    for span in styled.spans:
        if span.kind in _HOLDERS and span.start >= done:
            elements += writer.held(_SECTION, done, span.start)
            elements += writer.held(_HOLDERS[span.kind], span.start, span.end)
            done = span.end
    elements += writer.held(_SECTION, done, len(styled.text))
    return {"type": "rich_text", "elements": elements} if elements else None


class _Writer:
    """Writer of elements for ranges of one text."""

    def __init__(self, styled: Styled, account: str | None) -> None:
        self._text, self._spans = styled.text, styled.spans
        self._person = re.compile(rf"slack:{re.escape(account)}:([A-Z0-9]+)") if account is not None else None

    def held(self, kind: str, start: int, end: int) -> Iterator[Json]:
        """Yield the text from `start` to before `end` as one element on lines of its own."""
        covered = self._text[start:end]
        if not covered.strip():
            return
        start, end = end - len(covered.lstrip("\n")), start + len(covered.rstrip("\n"))
        if kind == _HOLDERS["pre"]:
            yield {"type": kind, "elements": [_element("text", self._text[start:end], {})]}
        else:
            yield {"type": kind, "elements": [*self._inline(start, end)]}

    def _inline(self, start: int, end: int) -> Iterator[Json]:
        """Yield an element for each range with the same styles."""
        spans = [span for span in self._spans if span.start < end and span.end > start]
        edges = {start, end, *(edge for span in spans for edge in (span.start, span.end) if start < edge < end)}
        over: list[Span] = []
        for left, right in pairwise(sorted(edges)):
            over = [span for span in over if span.end > left]
            while spans and spans[0].start <= left:
                over.append(spans.pop(0))
            yield from self._stretch(self._text[left:right], over)

    def _stretch(self, text: str, over: list[Span]) -> Iterator[Json]:
        kinds = {span.kind for span in over}
        address = next((span.value for span in over if span.kind == "link" and _is_address(span.value)), None)
        style: dict[str, Json] = {_STYLES[kind]: True for kind in _STYLES if kind in kinds}
        if address is not None:
            style.pop("code", None)
            yield _element("link", text.replace("\n", " "), style, url=re.sub(r"\s", _percent, address))
        elif "code" in style:
            person = self._person.fullmatch(text) if self._person is not None else None
            yield {"type": "user", "user_id": person[1]} if person else _element("text", text, style)
        else:
            yield from self._plain(text, style)

    def _plain(self, text: str, style: dict[str, Json]) -> Iterator[Json]:
        """Yield text, with its web addresses as links."""
        done = 0
        for found in _LINK.finditer(text):
            if not _is_address(found[0]):
                continue
            if found.start() > done:
                yield _element("text", text[done : found.start()], style)
            yield _element("link", found[0], style, url=found[0])
            done = found.end()
        if done < len(text):
            yield _element("text", text[done:], style)


def _element(kind: str, text: str, style: dict[str, Json], **more: Json) -> Json:
    return {"type": kind, **more, "text": text, **({"style": style} if style else {})}


def _is_address(value: str) -> bool:
    """True if Slack accepts this as a link. For an invalid one it would refuse the whole message."""
    if len(value) > _LONGEST_ADDRESS:
        return False
    try:
        url = urlsplit(value)
        return bool(url.hostname) if url.scheme in ("http", "https") else url.scheme == "mailto" and bool(url.path)
    except ValueError:
        return False


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())
