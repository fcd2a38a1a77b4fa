"""Signatures: the last lines of a message that do not belong to the answer.

A line under thanks or a closing is dropped only if the line is the person's own name. Any other line may have a
meaning, such as "not yet", so the whole message is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gateway.pending.folding import fold, unaccented
from gateway.pending.words import Words, common, heads, words_of

_RULE = re.compile(r"[-_—–]{1,3}")
_EDGES = " ,.!:;—–-"
_MOST_NAMES = 4
_BETWEEN_NAMES = re.compile(r"""[\s.,;:!@_()"'’·-]+""")


def without_signature(text: str, languages: Iterable[str], name: str | None) -> list[str] | None:
    """Return the folded lines of a text, without empty lines and signature.

    `name` is the person's own name and handle. None if a line under thanks or a closing is not made of the name's
    words.
    """
    lines = [(raw.strip(), folded) for raw in text.splitlines() if (folded := fold(raw))]
    if len(lines) < 2:
        return [folded for _, folded in lines]
    tables, named = [words_of(lang) for lang in languages], _names(name or "")
    while len(lines) > 1 and _is_signature(lines, tables, named):
        del lines[-1]
    thanks = [_is_closing(folded, tables) for _, folded in lines]
    if any(thanks[1:]) and not all(thanks[thanks.index(True, 1) :]):
        return None
    return [folded for _, folded in lines]


def _is_signature(lines: Sequence[tuple[str, str]], tables: Sequence[Words], named: frozenset[str]) -> bool:
    """Return True if the last line is a signature or a part of one."""
    raw, last = lines[-1]
    if _RULE.fullmatch(last) or any(_closes(raw, last.strip(_EDGES), words, tables, named) for words in tables):
        return True
    return _is_name(raw, tables, named) and _is_closing(lines[-2][1], tables)


def _is_closing(line: str, tables: Sequence[Words]) -> bool:
    """Return True for thanks, for a closing, and for the rule above a signature."""
    said = line.strip(_EDGES)
    return _RULE.fullmatch(line) is not None or any(said in words.closings or said in words.polite for words in tables)


def _closes(raw: str, last: str, words: Words, tables: Sequence[Words], named: frozenset[str]) -> bool:
    """Return True for a closing, alone or with the name, and for the line of a phone or mail program."""
    for before, after in words.sent_from:
        device = last[len(before) : len(last) - len(after)]
        if device and last.startswith(before) and last.endswith(after) and common().is_device(device):
            return True
    if last in words.closings:
        return True
    parts = re.split(r"[\s,]+", raw.strip(_EDGES))
    return any(
        fold(" ".join(parts[:-count])) in words.closings and _is_name(" ".join(parts[-count:]), tables, named)
        for count in range(1, min(_MOST_NAMES, len(parts) - 1) + 1)
    )


def _is_name(raw: str, tables: Sequence[Words], named: frozenset[str]) -> bool:
    """Return True for a text made only of the person's names.

    False for a text that is also an answer, a doubt or a change in these languages, or a plain no of any language: a
    person may be named Nein.
    """
    words, said = _names(raw), fold(raw).strip(_EDGES)
    if not words or not words <= named:
        return False
    if any(said in each.pieces or said in each.doubts or said in each.continuing.change for each in tables):
        return False
    return "cancel" not in heads().readings.get(said, {}).values()


def _names(text: str) -> frozenset[str]:
    """Return the words of a name, without accents."""
    return frozenset(filter(None, _BETWEEN_NAMES.split(unaccented(fold(text)))))
