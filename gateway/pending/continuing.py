"""Near answers: a yes followed by more words, and words of mere acknowledgement."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal

from gateway.pending.words import Words

_MARKS = " ,.;:!-–—"
_APART = (",", ".", "!")
_LONGEST_PREFIX = 3
_MOST_WORDS = 6
"""The most words of a yes, or of the text behind a yes."""
_MOST_SIGNS = 12
"""The same in a language without spaces: the most characters."""


def goes_on(text: str, words: Words) -> Literal["change", "add"] | None:
    """Return how a folded text continues after its yes, in a single language; None without a clear continuation."""
    rest = _behind_yes(text, words)
    if not rest:
        return None
    table = words.continuing
    instead = any(_begin(rest[at:], table.instead, words) for at in _starts(rest, words))
    begins = {
        kind: len(_begin(rest, texts, words, table.prefixes))
        for kind, texts in (("change", table.change), ("add", table.add))
    }
    if begins["add"] > begins["change"]:
        return None if instead else "add"
    return "change" if instead or begins["change"] else None


def adds(text: str, words: Words) -> bool:
    """Return True for a folded text with a word of adding anywhere behind the yes: "yes, but 8 too"."""
    rest, table, beyond = _behind_yes(text, words) or text, words.continuing, 0
    for at in _starts(rest, words):
        change = len(_begin(rest[at:], table.change | table.instead, words, table.prefixes))
        beyond = max(beyond, at + change)  # Japanese "but" ends with "too"
        if at + len(_begin(rest[at:], table.add | table.too, words, table.prefixes)) > max(beyond, at):
            return True
    return any(any(map(str.isdigit, word)) and word.strip(_MARKS).endswith(table.suffixes) for word in rest.split())


def acknowledges(text: str, words: Words) -> bool:
    """Return True for a folded text of only acknowledgements and politeness: "ok, thanks"."""
    return text in words.acknowledgements or (words.near.make(text) and not words.mere.make(text))


def _behind_yes(text: str, words: Words) -> str:
    """Return the text behind the yes and its politeness; empty without a yes."""
    for yes in _prefixes(text, words):
        roles = {piece.role for piece in words.pieces.get(yes.strip(_MARKS), ()) if piece.intent == "confirm"} - {
            "after"
        }
        rest = text[len(yes) :]
        if roles and (roles != {"comma head"} or yes.endswith(_APART) or rest.lstrip().startswith(_APART)):
            break
    else:
        return ""
    rest = rest.strip(_MARKS)
    harmless = words.polite | words.acknowledgements
    going_on = words.continuing.change | words.continuing.add
    while polite := _begin(rest, harmless, words):
        if len(_begin(rest, going_on, words, words.continuing.prefixes)) >= len(polite):
            break
        rest = rest[len(polite) :].strip(_MARKS)
    return rest


def _begin(text: str, texts: Container[str], words: Words, prefixes: Container[str] = ()) -> str:
    """Return the longest of these texts at the beginning of a text; empty without any."""
    whole = next((prefix for prefix in _prefixes(text, words) if prefix.strip(_MARKS) in texts), "")
    part = next(
        (text[:end] for end in range(min(len(text) - 1, 3), 0, -1) if text[:end] in prefixes and text[:end] in texts),
        "",
    )
    return whole or part


def _prefixes(text: str, words: Words) -> Iterator[str]:
    """Yield the beginnings of a text up to the end of a word, the longest first."""
    if not words.spaced:
        yield from (text[:end] for end in range(min(_MOST_SIGNS, len(text)), 0, -1))
        return
    ends = [at for at, char in enumerate(text) if char == " "][:_MOST_WORDS]
    ends += [len(text)] if len(ends) < _MOST_WORDS else []
    yield from (text[:end] for end in reversed(ends))


def _starts(text: str, words: Words) -> Iterator[int]:
    """Yield the indexes of the first characters of the words."""
    yield from (at for at in range(len(text)) if not words.spaced or at == 0 or text[at - 1] == " ")
