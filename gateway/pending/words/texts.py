"""The texts of a list in a word file: choices written out, folded, and in every spelling."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from gateway.pending.folding import fold, unaccented
from gateway.pending.words.table import UNSPACED

__all__ = ["spellings", "text_of", "texts"]

_MOST_TEXTS = 60
_MOST_VARIED = 3
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_COMMA = re.compile(r"\s*,\s*")


def texts(source: Mapping[str, Any], lang: str, key: str) -> Iterator[str]:
    """Yield the texts of a list, folded, with each choice written out."""
    for line in source.get(key, ()):
        folded = fold(line)  # once, instead of up to sixty texts
        yield from (_tidied(text, lang) for text in _expanded(folded))


def text_of(text: str, lang: str) -> str:
    """Return a text folded and tidied."""
    return _tidied(fold(text), lang)


def _tidied(text: str, lang: str) -> str:
    """Return a folded text with single spaces; in a language without spaces, without them."""
    text = unicodedata.normalize("NFC", _COMMA.sub(", ", text))
    return "".join(text.split()) if lang in UNSPACED else " ".join(text.split())


def _expanded(pattern: str) -> Iterator[str]:
    parts = _CHOICE.split(pattern)
    choices = [part.split("|") if place % 2 else [part] for place, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > _MOST_TEXTS or "[" in "".join(parts) or "]" in "".join(parts):
        raise ValueError(f"{pattern!r} is {count} texts, or its brackets do not match: at most {_MOST_TEXTS}.")
    return ("".join(each) for each in product(*choices))


def spellings(text: str) -> set[str]:
    """Return a folded text, and the same with each word also without accents and apostrophes."""
    words = [sorted({word, _plain(word)}) for word in text.split()]
    if sum(len(each) > 1 for each in words) > _MOST_VARIED:
        return {text, " ".join(map(_plain, text.split()))}
    return {" ".join(each) for each in product(*words)}


@lru_cache(4096)
def _plain(word: str) -> str:
    return (word if word.isascii() else unaccented(word)).replace("'", "")
