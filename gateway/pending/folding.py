"""Folding: the common form for comparing texts, words and languages."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_APOSTROPHES = dict.fromkeys(map(ord, "’‘ʼ´`＇"), "'")
_MARKS = {**dict.fromkeys(map(ord, "、،。"), ","), **dict.fromkeys(map(ord, "۔।॥"), ".")}
"""In Chinese and Japanese a full stop may stand in the place of a comma."""
_ARABIC = {
    **dict.fromkeys(map(ord, "أإآٱ"), "ا"),
    **dict.fromkeys(map(ord, "ىی"), "ي"),
    **dict.fromkeys(map(ord, "ةہھۀە"), "ه"),
    ord("ک"): "ك",
}
"""Letters for the same words on keyboards for Arabic, Persian and Urdu (Unicode Standard, chapter 9.2)."""
_NO_ACCENT = str.maketrans({"đ": "d", "ø": "o", "ł": "l", "ı": "i", "æ": "ae", "œ": "oe", "ß": "ss"})
_VOWEL_SIGNS = re.compile("[\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u0652\u0670]")
"""The vowel signs of Arabic and Hebrew, usually left out."""


def fold(text: str) -> str:
    """Return the common form of all ways to type the same words.

    Dropped: the differences of width, case, composed and decomposed accents, invisible characters, skin tones, kinds of
    apostrophe, comma and full stop, the two Turkish i, Arabic letter variants and vowel signs, and space, also around a
    comma. Kept: accents and the script of each letter.
    """
    text = text.translate(_APOSTROPHES)
    folded = text.lower() if text.isascii() else _fold_letters(text)
    if "," in folded:
        folded = re.sub(r"\s*,\s*", ", ", folded)
    return " ".join(folded.split())


def unaccented(text: str) -> str:
    """Return the text without the accents of its letters; other scripts keep their signs."""
    bare = "".join(char for char in unicodedata.normalize("NFD", text) if not "\u0300" <= char <= "\u036f")
    return unicodedata.normalize("NFC", bare).translate(_NO_ACCENT)


def base_language(tag: str) -> str:
    """Return the language of a BCP 47 tag; the region does not matter."""
    return re.split("[-_]", tag, maxsplit=1)[0].casefold()


def without_invisible(text: str) -> str:
    """Return the text without invisible characters: direction marks, isolates, joiners, variation selectors."""
    return text if text.isascii() else "".join(char for char in text if not _invisible(char))


def _fold_letters(text: str) -> str:
    visible = without_invisible(text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    folded = _VOWEL_SIGNS.sub("", folded.translate(_MARKS).translate(_ARABIC))
    return folded.replace("i\N{COMBINING DOT ABOVE}", "i").replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")


@lru_cache(4096)
def _invisible(char: str) -> bool:
    """Return True for format characters, variation selectors, the grapheme joiner, and modifiers of an emoji."""
    return (
        unicodedata.category(char) == "Cf"
        or "\N{VARIATION SELECTOR-1}" <= char <= "\N{VARIATION SELECTOR-16}"
        or char == "\N{COMBINING GRAPHEME JOINER}"
        or "\N{EMOJI MODIFIER FITZPATRICK TYPE-1-2}" <= char <= "\N{EMOJI MODIFIER FITZPATRICK TYPE-6}"
        or char in "\N{FEMALE SIGN}\N{MALE SIGN}"
    )
