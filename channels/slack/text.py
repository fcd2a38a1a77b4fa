"""What a person wrote, out of Slack's dialect. https://docs.slack.dev/messaging/formatting-message-text

Slack sends mentions and addresses as ``<...>``, and ``& < >`` of the person's own escaped.
"""

from __future__ import annotations

import html
import re

__all__ = ["mentions", "plain", "without_mention"]

_TOKEN = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_ESCAPED = re.compile(r"&(?:amp|lt|gt);")


def plain(text: str) -> str:
    """The words as the person saw them: ``@name`` for a mention, ``label (address)`` for a link."""
    pieces: list[str] = []
    done = 0
    for found in _TOKEN.finditer(text):
        pieces += (_unescaped(text[done : found.start()]), _unescaped(_said(found[1], found[2])))
        done = found.end()
    return "".join((*pieces, _unescaped(text[done:])))


def mentions(text: str, user_id: str) -> bool:
    return any(found[1] == f"@{user_id}" for found in _TOKEN.finditer(text))


def without_mention(text: str, user_id: str) -> str:
    """Without a mention of this user at the beginning or the end: it says who is meant, and is no part of the words."""
    mention = rf"<@{re.escape(user_id)}(?:\|[^<>]*)?>"
    return re.sub(rf"\A\s*{mention}[\s,:]*|[\s,]*{mention}\s*\Z", "", text)


def _said(what: str, label: str | None) -> str:
    if what.startswith(("@", "#")):
        return f"{what[0]}{label or what[1:]}"
    if what.startswith("!"):
        # <!here>, <!subteam^S1|@team>, <!date^1392734382^{date}|fallback>
        return label or f"@{what[1:].partition('^')[0]}"
    address = what.removeprefix("mailto:")
    return what if not label or label in (what, address) or what.endswith(f"//{label}") else f"{label} ({what})"


def _unescaped(text: str) -> str:
    """Once: ``&amp;lt;`` is ``&lt;``, as the person wrote it."""
    return _ESCAPED.sub(lambda found: html.unescape(found[0]), text)
