"""The one form in which texts, words and languages are compared."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["base_language", "fold", "unaccented"]

_APOSTROPHES = dict.fromkeys(map(ord, "’‘ʼ´`＇"), "'")


def fold(text: str) -> str:
    """Return the one form of all ways of typing the same words.

    Width, case, composed or decomposed accents, invisible characters, skin tones, the kind of apostrophe, the two
    Turkish i, and space, also around a comma, make no difference. Accents and the script of a letter do.
    """
    text = text.translate(_APOSTROPHES)
    folded = text.lower() if text.isascii() else _fold_letters(text)
    if "," in folded:
        folded = re.sub(r"\s*,\s*", ", ", folded)
    return " ".join(folded.split())


def unaccented(text: str) -> str:
    """Return the text without the accents of its letters, decomposed."""
    return "".join(char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char))


def base_language(tag: str) -> str:
    """Return the language of a BCP 47 tag; the region does not matter."""
    return re.split("[-_]", tag, maxsplit=1)[0].casefold()


def _fold_letters(text: str) -> str:
    visible = "".join(char for char in text if not _invisible(char))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return folded.replace("i\N{COMBINING DOT ABOVE}", "i").replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")


def _invisible(char: str) -> bool:
    """Return True for format characters, variation selectors, the grapheme joiner, and the skin tones of emoji."""
    return (
        unicodedata.category(char) == "Cf"
        or "\N{VARIATION SELECTOR-1}" <= char <= "\N{VARIATION SELECTOR-16}"
        or char == "\N{COMBINING GRAPHEME JOINER}"
        or "\N{EMOJI MODIFIER FITZPATRICK TYPE-1-2}" <= char <= "\N{EMOJI MODIFIER FITZPATRICK TYPE-6}"
    )
