"""Signatures: the lines that people, phones and mail programs put below an answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from gateway.pending.folding import fold
from gateway.pending.words import Words, common, words_of

__all__ = ["without_signature"]

_RULE = re.compile(r"[-_—–]{1,3}")
_END = " ,.!:;—–-"
_MOST_NAMES = 4
_PARTICLES = frozenset("al bin da das de del della den der di do dos du el la le ten ter van von y".split())  # noqa: SIM905
"""Small words in names, as in Sanne de Vries."""


def without_signature(text: str, languages: Iterable[str]) -> list[str]:
    """Return the folded lines of a text without the empty ones and without its signature."""
    lines = [(raw.strip(), folded) for raw in text.splitlines() if (folded := fold(raw))]
    tables = [words_of(lang) for lang in languages] if len(lines) > 1 else []
    while len(lines) > 1 and (below := _signed(lines, tables)):
        del lines[-below:]
    return [folded for _, folded in lines]


def _signed(lines: list[tuple[str, str]], tables: list[Words]) -> int:
    """Return how many of the last lines are a signature or a part of one."""
    raw, last = lines[-1][0], lines[-1][1].strip(_END)
    if _RULE.fullmatch(lines[-1][1]) or any(_closes(raw, last, words) for words in tables):
        return 1
    if not _is_name(raw):
        return 0
    before = lines[-2][1].strip(_END)
    named = _RULE.fullmatch(lines[-2][1]) or any(before in words.closings for words in tables)
    return min(2, len(lines) - 1) if named else 0


def _closes(raw: str, last: str, words: Words) -> bool:
    """Return True for a closing, alone or with a name, and for the line of a phone or mail program."""
    for pattern in words.sent_from:
        if (found := pattern.fullmatch(last)) and common().is_device(found.groupdict().get("device", "") or ""):
            return True
    if last in words.closings:
        return True
    parts = re.split(r"[\s,]+", raw.strip(_END))
    return any(
        fold(" ".join(parts[:-count])) in words.closings and _is_name(" ".join(parts[-count:]))
        for count in range(1, min(_MOST_NAMES, len(parts) - 1) + 1)
    )


def _is_name(raw: str) -> bool:
    """Return True for up to four words that begin like a name: with a capital, if the script has capitals."""
    parts = raw.strip(_END).split()
    return 0 < len(parts) <= _MOST_NAMES and all(
        (not part[0].islower() or (place > 0 and part in _PARTICLES))
        and all(char in ".'’-" or unicodedata.category(char)[0] in "LM" for char in part)
        for place, part in enumerate(parts)
    )
