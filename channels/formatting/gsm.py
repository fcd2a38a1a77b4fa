"""The characters a text message carries seven bits each."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["GSM", "drop_dear_accents", "fold_quotes", "fold_to_gsm"]

GSM = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà^{}\\[~]|€"
)
"""GSM 03.38 with its extension, of which each character counts twice."""

# Look-alikes of the GSM 03.38 alphabet: one character outside of it makes all of a message cost more than twice as
# much. Letters are never changed, so what is written in another alphabet stays as it is.
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
    """The text with quotes, dashes, spaces and dots of typography as a plain keyboard has them."""
    return text.translate(_FOLDED)


def fold_quotes(text: str) -> str:
    """The text with what stands around values in a form that is cheap to send, and every letter of them as it is.

    That is quotes, the sign for a new line, isolates and the bullets of lists: in values these are escaped.
    """
    return _BULLET.sub(r"\1- ", text.translate(_QUOTES))


def drop_dear_accents(text: str) -> str:
    """The text as people write it on a plain phone: letters that GSM 03.38 lacks go without their accents.

    For words of our own; what a person or a tool wrote is shown as it is.
    """
    return "".join(map(_cheap, text))


def _cheap(char: str) -> str:
    base = unicodedata.normalize("NFD", char)[0]
    return base if char not in GSM and base in GSM else char
