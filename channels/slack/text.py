"""Decoding of Slack's message text. https://docs.slack.dev/messaging/formatting-message-text

Slack sends mentions and addresses as ``<...>``, and escapes ``& < >`` in the person's own words.
"""

from __future__ import annotations

import html
import re

__all__ = ["mentions", "plain", "without_mention"]

_TOKEN = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_AROUND = " \t\r\n,:"
_ESCAPED = re.compile(r"&(?:amp|lt|gt);")


def plain(text: str) -> str:
    """Return the text as the person saw it: ``@name`` for a mention, ``label (address)`` for a link."""
    pieces: list[str] = []
    done = 0
    if "<" not in text:  # nearly always
        return _unescaped(text)
    for found in _TOKEN.finditer(text):
        pieces += (_unescaped(text[done : found.start()]), _unescaped(_shown(found[1], found[2])))
        done = found.end()
    return "".join((*pieces, _unescaped(text[done:])))


def mentions(text: str, user_id: str) -> bool:
    return "<@" in text and any(found[1] == f"@{user_id}" for found in _TOKEN.finditer(text))


def without_mention(text: str, user_id: str) -> str:
    """Return the text without a mention of this user at its beginning or end, which only addresses the message."""
    words = text.strip()
    if "<@" not in words:
        return words
    if (first := _TOKEN.match(words)) and first[1] == f"@{user_id}":
        words = words[first.end() :].lstrip(_AROUND)
    if (last := _TOKEN.fullmatch(words[max(0, words.rfind("<")) :])) and last[1] == f"@{user_id}":
        words = words[: words.rfind("<")].rstrip(_AROUND)
    return words


def _shown(target: str, label: str | None) -> str:
    if target.startswith(("@", "#")):
        return f"{target[0]}{label or target[1:]}"
    if target.startswith("!"):
        # <!here>, <!subteam^S1|@team>, <!date^1392734382^{date}|fallback>
        return label or f"@{target[1:].partition('^')[0]}"
    address = target.removeprefix("mailto:")
    return (
        address if not label or label in (target, address) or target.endswith(f"//{label}") else f"{label} ({address})"
    )


def _unescaped(text: str) -> str:
    """Unescape once: ``&amp;lt;`` becomes ``&lt;``, as the person wrote it."""
    return _ESCAPED.sub(lambda found: html.unescape(found[0]), text)
