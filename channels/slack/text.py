"""What a person wrote, out of Slack's dialect. https://docs.slack.dev/messaging/formatting-message-text

Slack sends mentions and addresses as ``<...>``, and ``& < >`` of the person's own escaped.
"""

from __future__ import annotations

import html
import re

__all__ = ["mentions", "plain", "without_mention"]

_TOKEN = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_AROUND = " \t\r\n,:"
_ESCAPED = re.compile(r"&(?:amp|lt|gt);")


def plain(text: str) -> str:
    """The words as the person saw them: ``@name`` for a mention, ``label (address)`` for a link."""
    pieces: list[str] = []
    done = 0
    if "<" not in text:  # nearly always
        return _unescaped(text)
    for found in _TOKEN.finditer(text):
        pieces += (_unescaped(text[done : found.start()]), _unescaped(_said(found[1], found[2])))
        done = found.end()
    return "".join((*pieces, _unescaped(text[done:])))


def mentions(text: str, user_id: str) -> bool:
    return "<@" in text and any(found[1] == f"@{user_id}" for found in _TOKEN.finditer(text))


def without_mention(text: str, user_id: str) -> str:
    """Without a mention of this user at the beginning or the end: it says who is meant, and is no part of the words."""
    words = text.strip()
    if "<@" not in words:
        return words
    if (first := _TOKEN.match(words)) and first[1] == f"@{user_id}":
        words = words[first.end() :].lstrip(_AROUND)
    if (last := _TOKEN.fullmatch(words[max(0, words.rfind("<")) :])) and last[1] == f"@{user_id}":
        words = words[: words.rfind("<")].rstrip(_AROUND)
    return words


def _said(what: str, label: str | None) -> str:
    if what.startswith(("@", "#")):
        return f"{what[0]}{label or what[1:]}"
    if what.startswith("!"):
        # <!here>, <!subteam^S1|@team>, <!date^1392734382^{date}|fallback>
        return label or f"@{what[1:].partition('^')[0]}"
    address = what.removeprefix("mailto:")
    return address if not label or label in (what, address) or what.endswith(f"//{label}") else f"{label} ({address})"


def _unescaped(text: str) -> str:
    """Once: ``&amp;lt;`` is ``&lt;``, as the person wrote it."""
    return _ESCAPED.sub(lambda found: html.unescape(found[0]), text)
