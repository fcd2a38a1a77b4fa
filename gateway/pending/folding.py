"""The one form in which texts and words are compared."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["fold"]

_APOSTROPHES = dict.fromkeys(map(ord, "’‘ʼ´`＇"), "'")


def fold(text: str) -> str:
    """One form for all ways of typing the same words.

    Width, case, composed or decomposed accents, invisible characters, skin tones, the kind of apostrophe, the two
    Turkish i, and space, also around a comma, make no difference. Accents and the script of a letter do.
    """
    text = text.translate(_APOSTROPHES)
    folded = text.lower() if text.isascii() else _fold_letters(text)
    if "," in folded:
        folded = re.sub(r"\s*,\s*", ", ", folded)
    return " ".join(folded.split())


def _fold_letters(text: str) -> str:
    visible = "".join(char for char in text if not _invisible(char))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return folded.replace("i\N{COMBINING DOT ABOVE}", "i").replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")


def _invisible(char: str) -> bool:
    """Format characters, variation selectors, the grapheme joiner; and skin tones, which only colour an emoji."""
    return (
        unicodedata.category(char) == "Cf"
        or "\N{VARIATION SELECTOR-1}" <= char <= "\N{VARIATION SELECTOR-16}"
        or char == "\N{COMBINING GRAPHEME JOINER}"
        or "\N{EMOJI MODIFIER FITZPATRICK TYPE-1-2}" <= char <= "\N{EMOJI MODIFIER FITZPATRICK TYPE-6}"
    )
