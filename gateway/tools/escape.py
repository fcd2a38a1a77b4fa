"""Escaping of foreign texts for display: every character can be read, and none acts as Markdown.

No two different values look equal. An invisible character, a change of the text's direction, or a look-alike of another
character becomes an escape, ``\\u`` and the number.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from channels import Json
from gateway.wording import isolated

LIKE_ASCII = frozenset(
    "\U00011706\U0001170a\U0001170e\U0001170f"  # Ahom
    "\u054d\u054f\u0555\u0561\u0563\u0566\u0570\u0578\u057c\u057d\u0581\u0584\u0585"  # Armenian
    "\ua6df"  # Bamum
    "\u142f\u144c\u146d\u146f\u1472\u148d\u14aa\u14bf\u1541\u157c\u157d\u1587\u15af\u15b4\u15c5\u15de"
    "\u15ea\u15f0\u15f7"  # Canadian
    "\U000102a0\U000102a1\U000102a2\U000102a5\U000102ab\U000102b0\U000102b1\U000102b2\U000102b4"
    "\U000102cf"  # Carian
    "\u13a0\u13a1\u13a2\u13a5\u13a9\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13bd\u13c0\u13c2\u13c3\u13ce"
    "\u13cf\u13d2\u13d4\u13d5\u13d9\u13da\u13de\u13df\u13e2\u13e6\u13e7\u13ee\u13f3\u13f4\uab75\uab81"
    "\uab83\uab93\uaba9\uabaa\uabaf"  # Cherokee
    "\u03e8\u2c85\u2c8e\u2c92\u2c94\u2c98\u2c9a\u2c9e\u2c9f\u2ca2\u2ca3\u2ca4\u2ca5\u2ca6\u2ca8\u2cac"
    "\u2cca\u2ccc\u2cd0\u2cd2"  # Coptic
    "\u0405\u0406\u0408\u0410\u0412\u0415\u0417\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425"
    "\u042c\u0430\u0431\u0433\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u0461\u0474\u0475"
    "\u04ae\u04af\u04bb\u04bd\u04c0\u04cf\u04e0\u0501\u050c\u051b\u051c\u051d\ua644\ua647"  # Cyrillic
    "\U00010404\U00010415\U0001041b\U00010420\U0001042c\U0001043d\U00010448"  # Deseret
    "\U00010513\U00010516\U00010518\U0001051c\U0001051d\U00010525\U00010526\U00010527"  # Elbasan
    "\u1200\u12d0"  # Ethiopic
    "\u10e7\u10ff"  # Georgian
    "\u037f\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1"
    "\u03b3\u03b9\u03bd\u03bf\u03c1\u03c3\u03c5\u03dc\u03f3\u03fa"  # Greek
    "\ua4d0\ua4d1\ua4d2\ua4d3\ua4d4\ua4d6\ua4d7\ua4d9\ua4da\ua4dc\ua4dd\ua4df\ua4e0\ua4e1\ua4e2\ua4e3"
    "\ua4e6\ua4e7\ua4ea\ua4eb\ua4ec\ua4ee\ua4f0\ua4f2\ua4f3\ua4f4"  # Lisu
    "\U00010282\U00010286\U00010287\U0001028a\U00010290\U00010292\U00010295\U00010296\U00010297"  # Lycian
    "\u0d20"  # Malayalam
    "\U00016f08\U00016f0a\U00016f16\U00016f28\U00016f35\U00016f3a\U00016f3b\U00016f40\U00016f42"
    "\U00016f43"  # Miao
    "\u101d"  # Myanmar
    "\U00010301\U00010302\U00010309\U00010311\U00010315\U00010317\U0001031a"  # Old
    "\u0b20"  # Oriya
    "\U000104b4\U000104c2\U000104ce\U000104d2\U000104ea\U000104f6"  # Osage
    "\u16b7\u16c1\u16d5\u16d6"  # Runic
    "\u2d38\u2d39\u2d4f\u2d54\u2d55\u2d5d"  # Tifinagh
    "\U000118a0\U000118a2\U000118a3\U000118a4\U000118a6\U000118a9\U000118ac\U000118ae\U000118af"
    "\U000118b2\U000118b5\U000118b8\U000118bb\U000118bc\U000118c0\U000118c1\U000118c2\U000118c3"
    "\U000118c4\U000118c6\U000118c8\U000118ca\U000118cc\U000118d5\U000118d6\U000118d7\U000118d8"
    "\U000118dc"  # Warang
)
"""The look-alikes of ASCII characters in the Unicode Consortium's confusables.txt (UTS #39, version 15.1).

The characters are grouped by script. Left out are Latin letters, compatibility forms (escaped anyway), and
right-to-left letters.
"""


_LONGEST_NAME = 40

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&])")
_LETTERS = "A-Za-z\u00c0-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e"
_ORDINARY = re.compile(rf"[ !#-\[\]-~{_LETTERS}]*")
_ORDINARY_SENTENCE = re.compile(rf"[ -~{_LETTERS}“”⏎]*")
"""Texts without a need for escapes, like most texts: the fast path."""
_WORD_LIKE = re.compile(r"[A-Za-z0-9](?:[\w.@/+#-]{0,98}[A-Za-z0-9])?", re.ASCII)
"""Values of a single plain word, shown without quotes. Colons are excluded: the word may be a person's id."""
_PLAIN_NAME = re.compile(r"[^\W_](?:[\w.+-]*[^\W_])?")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_READ_AS_ESCAPE = frozenset("uUxn*_~`")
"""Characters forming an escape after a backslash, here or on some platform.

Real backslashes before these are doubled, so an escape has an odd number of backslashes.
"""
_ASCII_SIGN = re.compile(r'(?<!\\)\\++(?=[uUxn*_~`"\x00-\x1f\x7f]| \Z)|["\x00-\x1f\x7f]|\A |(?<= ) | \Z')
_REMEMBERED = 64
"""The number of texts in the cache: the same question is rendered several times."""
_QUOTED = re.compile('“[^“”]*”|"[^"]*"')
_ESCAPE = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")
_IN_AN_ADDRESS = re.compile(r"[\s<>\\^`{|}\"]")


QUICK = 3_000
"""The most characters of a text escaped in a few milliseconds at worst. Escape longer texts in a thread."""


def visible(text: str) -> str:
    """Return a text with every character readable. Two different texts never give the same result.

    A line end becomes ``⏎``. Escaped are quotes, control, format, direction and blank characters, double spaces and
    spaces at the ends, letters of another script than the rest of the word, words of Latin look-alikes alone,
    compatibility forms of a letter, and look-alikes of ASCII punctuation marks.
    """
    return _remembered(text) if len(text) <= QUICK else _visible(text)


def _visible(text: str) -> str:
    if _ORDINARY.fullmatch(text) and "  " not in text and text.strip(" ") == text:
        return text
    if text.isascii():
        return _ASCII_SIGN.sub(_escape_ascii, text)
    hidden = _signs(text, _is_unlike, exact=True)
    pieces: list[str] = []
    backslashes = ""
    for index, char in enumerate(text):
        if hidden[index] or char == "\n" or char in _READ_AS_ESCAPE:
            pieces.append(backslashes)
        backslashes = backslashes + char if char == "\\" else ""
        pieces.append("⏎" if char == "\n" else _escape(char) if hidden[index] else char)
    return "".join(pieces)


_remembered = lru_cache(_REMEMBERED)(_visible)


def shown(value: Json, *, bare: bool = True) -> str:
    """Return the display text of a value, different for each value: a text in quotes, any other value as JSON.

    With `bare`, a single plain word stands without quotes, unless readable as a number, a truth value or null.
    """
    if not isinstance(value, str):
        written = json.dumps(value, ensure_ascii=False)
        return _STRING.sub(lambda found: f'"{visible(json.loads(found[0]))}"', written) if '"' in written else written
    if bare and _WORD_LIKE.fullmatch(value) and not _is_literal(value):
        return value
    return f"“{visible(value)}”"


def legible(text: str) -> str:
    """Return a sentence without hidden characters. The sentence's own quotes, escapes and punctuation stay.

    In a sentence with right-to-left letters, quoted texts are isolated, and so do not reorder the surroundings.
    """
    return _remembered_sentence(text) if len(text) <= QUICK else _legible(text)


def _legible(text: str) -> str:
    if not _ORDINARY_SENTENCE.fullmatch(text):
        hidden = _signs(text, _is_hidden, exact=False)
        text = "".join(_in_a_sentence(char, escape=escape) for char, escape in zip(text, hidden, strict=True))
    if has_right_to_left(text):
        return _QUOTED.sub(lambda found: isolated(found[0]), text)
    return text


_remembered_sentence = lru_cache(_REMEMBERED)(_legible)


def plain(text: str) -> str:
    """Return Markdown rendering as exactly this sentence, without links, headings or emphasis."""
    return _MARKUP.sub(r"\\\1", legible(text))


def named(name: str) -> str:
    """Return the name of a person or a file as Markdown: quoted unless a single plain word, cut to 40 characters."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 16]}…{name[-15:]}"
    read = visible(name)
    return plain(read if read == name and _PLAIN_NAME.fullmatch(name) else f"“{read}”")


def link(name: str | None, url: str) -> str:
    """Return a Markdown link to a file. Without a name the URL is the text."""
    address = _IN_AN_ADDRESS.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)
    return f"[{named(name) if name else plain(url)}](<{address.replace('&', chr(92) + '&')}>)"


def has_right_to_left(text: str) -> bool:
    """Return True if the text has right-to-left letters."""
    return not text.isascii() and any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text)


def _is_literal(text: str) -> bool:
    """Return True if a text reads as a number, a truth value or null."""
    if text.lower() in ("true", "false", "null", "none"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _escape_ascii(found: re.Match[str]) -> str:
    sign = found[0]
    return sign + sign if sign[0] == "\\" else "⏎" if sign == "\n" else _escape(sign)


def _in_a_sentence(char: str, *, escape: bool) -> str:
    if char == "\n":
        return " ⏎ "
    if unicodedata.category(char) == "Zs":
        return " "
    return _escape(char) if escape else char


# ── which characters are escaped ──

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0")
_HIDDEN_RANGES = (
    (0x0334, 0x0338),  # marks that strike a letter through
    (0x1100, 0x11FF),  # parts of Hangul syllables, which join
    (0x180B, 0x180F),  # variation selectors
    (0x20D0, 0x20FF),  # marks around a letter
    (0x2E80, 0x2FDF),  # radicals, which look like the letter they are the radical of
    (0xA960, 0xA97F),
    (0xD7B0, 0xD7FF),
    (0xFE00, 0xFE0F),  # variation selectors
    (0xE0100, 0xE01EF),
)
_LIKE_PUNCTUATION = frozenset(
    '"“”⏎'  # the signs that this module writes
    "\u02d7\u2010\u2011\u2012\u2015\u2043\u2212"  # -
    "\u2044\u2215\u29f8\u2216\u29f5"  # / \
    "\u201a\u2024\u02d0\ua789\u2236\u01c3\u01c0\u2223"  # , . : ! |
    "\u02b9\u02bb\u02bc\u02c8\u02ca\u02cb\u201b\u2032\u2035"  # ' `
    "\u2217\u066d\u204e\u223c\u02dc"  # * ~
    "\u2027\u2219\u22c5"  # the middle dot
    "\u0251\u0261"  # a g
)
_LIKE_LATIN = frozenset("\u0184\u018d\u0196\u01a6\u01a7\u01bc\u01bd\u01c1\u0222\u0223\uab32\uab35\uab3d")
"""Rare letters of Latin script, looking like common letters, beside the range `_PHONETIC`."""
_PHONETIC = (0x1D00, 0x1DBF)
_LIKE_A_DASH = frozenset("\u2013\u30fc\u4e00\u3161")
"""Characters looking like a dash within a word of ASCII. Elsewhere these are shown unchanged."""
_OWN_FORMS = frozenset({"ARMENIAN", "FULLWIDTH", "HALFWIDTH", "HANGUL", "LAO", "THAI", "TIBETAN"})
"""Scripts with compatibility forms among the common letters."""
_EAST_ASIAN = frozenset({"CJK", "BOPOMOFO", "HALFWIDTH", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA"})
_ONE_WORD = frozenset({*_EAST_ASIAN, "FULLWIDTH", "LATIN"})
"""Scripts mixed within a word. Full-width letters beside ASCII are escaped before this test."""
_MOST_MARKS = 4
_EMOJI_JOINERS = frozenset("\ufe0f\u200d")


def _signs(text: str, is_sign: Callable[[str], bool], *, exact: bool) -> list[bool]:
    """Return a flag for each character of a text: True if escaped.

    `exact` also escapes quotes, extra spaces, and the joiners of emoji. Without `exact`, these may stay as written by
    an author.
    """
    hidden = [char != "\n" and not (char.isascii() and char.isprintable()) and is_sign(char) for char in text]
    if exact:
        for index, char in enumerate(text):
            beside = index in (0, len(text) - 1) or text[index - 1] == " "
            hidden[index] = hidden[index] or char == '"' or (char == " " and beside)
    else:
        for index, char in enumerate(text):
            if char in _EMOJI_JOINERS and index and not hidden[index - 1]:
                before = text[index - 1]
                hidden[index] = before not in _EMOJI_JOINERS and unicodedata.category(before) not in ("So", "Sk")
    if not text.isascii():
        _sign_marks(text, hidden)
        words = _words(text, hidden, exact=exact)
        for word in words:
            _sign_word(text, hidden, word, exact=exact)
        _sign_look_alikes(text, hidden, words)
        for index in range(1, len(text)):
            if hidden[index - 1] and unicodedata.category(text[index])[0] == "M":
                hidden[index] = True
    return hidden


def _sign_marks(text: str, hidden: list[bool]) -> None:
    """Flag combining marks without a letter, and marks composing another letter with the letter before."""
    cluster, normal = "", unicodedata.is_normalized("NFC", text)
    for index, char in enumerate(text):
        is_mark = unicodedata.category(char)[0] == "M"
        stray = is_mark and char not in _EMOJI_JOINERS and not 0 < len(cluster) <= _MOST_MARKS
        joins = not normal and unicodedata.normalize("NFC", cluster + char) != cluster + char
        if hidden[index] or stray or joins:
            hidden[index], cluster = True, ""
        elif is_mark:
            cluster += char
        else:
            cluster = char if char.isalnum() else ""


def _words(text: str, hidden: list[bool], *, exact: bool) -> list[range]:
    """Return the ranges of words with characters beyond ASCII. In a sentence, an escape is not part of a word."""
    start, words = 0, []
    apart = [] if exact else [index for found in _ESCAPE.finditer(text) for index in range(*found.span())]
    ends = {*apart, len(text)}
    for index in range(len(text) + 1):
        if index not in ends and (hidden[index] or _is_of_a_word(text[index])):
            continue
        if not text[start:index].isascii():
            words.append(range(start, index))
        start = index + 1
    return words


def _sign_look_alikes(text: str, hidden: list[bool], words: list[range]) -> None:
    """Flag words of Latin look-alikes alone, unless the text has other letters of the same script."""
    letters = [[index for index in word if not hidden[index] and _is_a_letter(text[index])] for word in words]
    scripts = {_script(text[index]) for word in letters for index in word if not _looks_latin(text[index])}
    if not scripts.isdisjoint(_EAST_ASIAN):
        scripts.add("FULLWIDTH")
    for word in letters:
        if all(_looks_latin(text[index]) and _script(text[index]) not in scripts for index in word):
            for index in word:
                hidden[index] = True


def _sign_word(text: str, hidden: list[bool], word: range, *, exact: bool) -> None:
    """Flag the letters of another script than the rest of the word."""
    letters = [index for index in word if not hidden[index] and text[index].isalnum()]
    ascii_too = any(text[index].isascii() for index in letters)
    for index in letters:
        foreign = text[index].isdecimal() or _script(text[index]) == "FULLWIDTH"
        hidden[index] = ascii_too and foreign and not text[index].isascii()
    if exact:
        for index in word[1:-1]:
            if text[index] in _LIKE_A_DASH and _is_ascii_word(text[index - 1]) and _is_ascii_word(text[index + 1]):
                hidden[index] = True
    scripts = {index: _script(text[index]) for index in letters if not hidden[index] and text[index].isalpha()}
    found = Counter(scripts.values())
    if len(found) < 2:
        return
    main = max(found, key=lambda script: (found[script], script == "LATIN"))
    together = _ONE_WORD if main in _ONE_WORD else {main}
    for index, script in scripts.items():
        hidden[index] = script not in together


def _is_of_a_word(char: str) -> bool:
    return char in "-_\u2013" or char.isalnum() or unicodedata.category(char)[0] == "M"


def _is_a_letter(char: str) -> bool:
    return char.isalpha() or (_script(char) == "FULLWIDTH" and char.isdecimal())


@lru_cache(4096)
def _looks_latin(char: str) -> bool:
    """Return True if a non-Latin letter looks like an ASCII letter, accents aside."""
    return unicodedata.normalize("NFD", char)[0] in LIKE_ASCII or _script(char) == "FULLWIDTH"


def _is_ascii_word(char: str) -> bool:
    return char.isascii() and char.isalnum()


@lru_cache(4096)
def _is_hidden(char: str) -> bool:
    """Return True if a character is invisible, or rendered like another."""
    number, category = ord(char), unicodedata.category(char)
    if not char.isprintable():
        return category != "Zs" or char == "\u1680"
    if char in _BLANK or category == "Me" or any(first <= number <= last for first, last in _HIDDEN_RANGES):
        return True
    other_form = number > 0xFF and category[0] in "LN" and category != "No"
    return other_form and unicodedata.normalize("NFKC", char) != char and _script(char) not in _OWN_FORMS


@lru_cache(4096)
def _is_unlike(char: str) -> bool:
    """Return True if a character in a value could be mistaken for another."""
    if char in _LIKE_PUNCTUATION or char in _LIKE_LATIN or not char.isprintable() or _is_hidden(char):
        return True
    return _PHONETIC[0] <= ord(char) <= _PHONETIC[1] or "SMALL CAPITAL" in unicodedata.name(char, "")


@lru_cache(4096)
def _script(char: str) -> str:
    """Return the script of a letter: the first word of the Unicode name."""
    if char < "\u0250":
        return "LATIN"
    return unicodedata.name(char, "").partition(" ")[0].partition("-")[0]
