"""Pseudonyms of people and conversations in the log: stable for each person, without name or number."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable

_DIGITS = 12
"""Hex digits of a pseudonym, 48 bits: among a million people two share one with a chance of one in 500."""


def pseudonyms(key: bytes, channels: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces each person and conversation in a text with a keyed pseudonym.

    ``telegram:123:456`` becomes ``telegram:123:~3f9a0c51d2e7``. The channel, the bot's account, a thread and the ids of
    messages and actions stay. A private chat and its person on Telegram, SMS and WhatsApp have the same pseudonym. In
    Slack's id of a press, ``U7/C1/1712.0001/...``, the first part is a person.
    """
    written = "|".join(re.escape(name) for name in channels)
    found = re.compile(
        rf"(?<![\w:])((?:{written}):[^\s:\"/,]*:)([^\s\"/,\\]+)|(?<![\w/:])()([UW][A-Z0-9]{{2,}})(?=/[A-Z0-9]+/\d)"
    )

    def pseudonym(match: re.Match[str]) -> str:
        before, person = (match[1], match[2]) if match[2] else (match[3], match[4])
        # A sentence may end with a punctuation mark, and no id does.
        rest = person[len(bare := person.rstrip(".:;)!?'")) :]
        mac = hmac.digest(key, (before + bare).encode("utf-8", "backslashreplace"), "sha256").hex()
        return f"{before}~{mac[:_DIGITS]}{rest}"

    return lambda text: found.sub(pseudonym, text)
