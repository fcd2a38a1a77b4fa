"""The GSM alphabet, whose characters take seven bits in a text message."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["GSM", "drop_dear_accents", "fold_quotes", "fold_to_gsm"]

GSM = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà^{}\\[~]|€"
)
"""GSM 03.38 with its extension. A character of the extension counts twice."""

# Look-alikes in the GSM 03.38 alphabet: one character outside of it makes a whole message more than twice as expensive.
# Letters are never changed, so a text in another alphabet stays as it is.
_FOLDED = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u0060\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2022\u00b7", "-"),
        **dict.fromkeys("\u00a0\u2007\u2008\u2009\u200a\u202f\u3000\t", " "),
        **dict.fromkeys("\u200b\u2060\ufeff\u00ad"),
        "\u2026": "...",
        "\u2192": "->",
        "\u23ce": "\\n",
        "\u00d7": "x",
    }
)

_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u23ce": "\\n", "\u2068": None, "\u2069": None})
_BULLET = re.compile(r"^( *)\u2022 ", re.MULTILINE)


def fold_to_gsm(text: str) -> str:
    """Return the text with typographic quotes, dashes, spaces and dots as a plain keyboard has them."""
    return text.translate(_FOLDED)


def fold_quotes(text: str) -> str:
    """Return the text with the signs around values in a form that is cheap to send. The values stay unchanged.

    The signs are quotes, the sign for a new line, isolates and the bullets of lists. Values have them escaped.
    """
    return _BULLET.sub(r"\1- ", text.translate(_QUOTES))


def drop_dear_accents(text: str) -> str:
    """Return the text without the accents of letters that GSM 03.38 lacks, as people write on a plain phone.

    It is for the gateway's own texts. A text of a person or a tool is sent as it is.
    """
    return "".join(map(_cheap, text))


def _cheap(char: str) -> str:
    base = unicodedata.normalize("NFD", char)[0]
    return base if char not in GSM and base in GSM else char
