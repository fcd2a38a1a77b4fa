"""Selecting: the items of a numbered plan confirmed or refused by a message.

The whole message must be a selection, by the patterns of this file and the table `plan` of the word files. Every other
text selects no item: an unknown word, a number without an item, a condition, a question. The rules never guess, because
a wrong yes cannot be undone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from math import prod
from typing import Final, NamedTuple

from gateway.pending.folding import without_invisible
from gateway.pending.reading import MAX_LENGTH, unwrapped, without_emoji
from gateway.pending.words import PlanPart, PlanRole, PlanWords, Words
from gateway.pending.words.plan import MOST_ITEMS

LEAST_ITEMS: Final = 2
"""The fewest items of a plan. A single action is answered by a yes or a no."""
_MOST_PARTS = 40
_MOST_READINGS = 64
_NUMBER = re.compile("[0-9]+")
_DASHES = "-‐–"
_NUMERO = re.compile("№|[nｎ]\\.?[º°]", re.IGNORECASE)
_RAISED = re.compile("(?<![0-9])[ºª]")
"""The signs for "number", and a raised letter of another word. Folding would turn "nº" into the word "no"."""
_PRICE = re.compile("[0-9][,，،、。][0-9]{2}")
"""A comma right before two digits, as in a price: "1,10"."""
_CODE_LIKE = re.compile(r"(?<![\d,] )(?<!\d)\d(?: \d){3}(?!\d)(?! \d)")
"""Four single digits separated by spaces, possibly the code of an action."""

_LETTERS: Final[Mapping[PlanRole, str]] = {
    "yes": "y",
    "comma_yes": "Y",
    "no": "h",
    "polite": "k",
    "confirm": "c",
    "confirm_after": "C",
    "refuse": "r",
    "only": "o",
    "only_after": "O",
    "all": "A",
    "both": "B",
    "none": "Z",
    "neither": "W",
    "except": "E",
    "except_after": "X",
    "not": "n",
    "not_alone": "N",
    "not_after": "v",
    "but_not": "b",
    "and": "a",
    "from": "f",
    "to": "t",
    "to_after": "T",
    "mark": "m",
    "item": "i",
    "item_after": "j",
    "place": "p",
    "group": "g",
}
"""The letter of each role in the patterns. A number is `d`, and a comma is itself."""

_ONE = "i?m?dj?"
_RANGE = "f?i?m?dj?ti?m?dj?T?"
_ITEM = f"(?:{_ONE}|{_RANGE}|p|g)"
"""A unit of a selection: an item, a range, the first three."""
_JOIN = "(?:,a?|a)"
_ITEMS = f"(?:i?m?d(?:m?d)+|im?d(?:im?d)+|{_ITEM})(?:{_JOIN}{_ITEM})*"
"""A list of items. Only numbers of the same form may follow each other without a comma or an "and"."""
_YES = "(?:(?:y,?|Y,){1,2}(?:k,?)?)?"


@cache
def _patterns() -> Sequence[re.Pattern[str]]:
    """Return the patterns of a selection. Compiling takes 20 ms, and most processes read no selection."""
    return tuple(
        re.compile(f"(?:k,?)?{pattern}(?:,?k)?")
        for pattern in (
            f"{_YES}(?:c,?)?o?(?P<yes>{_ITEMS})O?C?",
            f"{_YES}(?:c,?)?o?(?P<yes>{_ITEMS})(?:{_JOIN}?b|{_JOIN}n)(?P<no>{_ITEM})",
            f"{_YES}(?:c,?)?(?P<yes>{_ITEMS}){_JOIN}r(?P<no>{_ITEMS})",
            f"r(?P<no>{_ITEMS}){_JOIN}c(?P<yes>{_ITEMS})",
            f"r(?P<no>{_ITEMS})",
            f"[nN](?P<no>{_ITEM})",
            f"(?P<no>{_ITEM})v",
            f"{_YES}(?:c,?)?(?P<all>[AB])C?",
            f"{_YES}(?:c,?)?(?P<all>A)(?:,?E(?P<but>{_ITEMS})|,?(?P<but_before>{_ITEMS})X|(?:,?b|,n)(?P<but_one>{_ITEM}))C?",
            f"{_YES}(?:c,?)?(?:E(?P<but>{_ITEMS})X?|(?P<but_before>{_ITEMS})X),?(?P<all>A)C?",
            "(?:h,?)?(?P<none>[ZW])",
            "r(?P<none>[AB])",
        )
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The items of a plan decided by a message, by number. The others stay open."""

    confirmed: frozenset[int]
    refused: frozenset[int]
    everything: bool = field(default=False, compare=False)
    """True if "all" or "both" names the confirmed items, with or without exceptions."""


class _Read(NamedTuple):
    text: str
    parts: Sequence[PlanPart]
    """The possible readings; empty for a number, a comma and a dash."""
    sign: str
    """The letter of a token without parts."""

    @property
    def readings(self) -> Sequence[tuple[str, int]]:
        """The possible letters, each with its number."""
        if not self.parts:
            return ((self.sign, int(self.text) if self.sign == "d" else 0),)
        return sorted({(_LETTERS[part.role], part.number) for part in self.parts})


def read_selection(text: str, items: int, words: Words, name: str | None = None) -> Selection | None:
    """Return the items confirmed and refused by a whole message in a language; None for a message that is no selection.

    `items` is the number of items of the plan, `name` the person's own name and handle. A plain yes or no is no
    selection, because no item is named.
    """
    if not LEAST_ITEMS <= items <= MOST_ITEMS or len(text) > MAX_LENGTH:
        return None
    plain = _with_plain_digits(text)
    core = unwrapped(plain, words.language, name) if plain is not None else None
    if core is None:
        return None
    for form, fitting in without_emoji(core):
        said = _selection(form, items, words)
        if said is not None:
            return said if ("confirm" if said.confirmed else "cancel") in fitting else None
    return None


def _with_plain_digits(text: str) -> str | None:
    """Return the text with the digits of all scripts as 0 to 9; None for other numerals, and for a price."""
    if not text.isascii():
        text = without_invisible(text)
        text = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)
        text = _NUMERO.sub("#", text)
        if _RAISED.search(text) or any(map(_stands_for_more, text)):
            return None
    return None if _PRICE.search(text) else text


def _stands_for_more(char: str) -> bool:
    """Return True for a numeral other than a digit, and for a raised or lowered character other than in 1º, 1ª."""
    if unicodedata.category(char) in ("No", "Nl"):
        return True
    return char not in "ºª" and unicodedata.decomposition(char).startswith(("<super>", "<sub>"))


def _selection(form: str, items: int, words: Words) -> Selection | None:
    """Return the only reading of a folded text without emoji and end mark."""
    tokens = _cut(form, words)
    if tokens is None or _CODE_LIKE.search(form) or _repeats_to(tokens, words.plan):
        return None
    said = [token.text for token in tokens if not any(part.role == "polite" for part in token.parts)]
    if (" " if words.spaced else "").join(said).strip(" ,") in words.plan.unclear:
        return None
    ways = [token.readings for token in tokens]
    if prod(map(len, ways)) > _MOST_READINGS:
        return None
    found = [selection for way in product(*ways) for selection in _meanings(way, items)]
    if len(set(found)) != 1 or found[0] is None:
        return None
    return replace(found[0], everything=any(each is not None and each.everything for each in found))


def _repeats_to(tokens: Sequence[_Read], plan: PlanWords) -> bool:
    """Return True for a "to" behind a "yes to": Spanish "sí al 1 al 3" is a range, or a list without a comma."""
    ends = tuple(f" {text}" for text, parts in plan.parts.items() if any(part.role == "to" for part in parts))
    opened = False
    for token in tokens:
        roles = {part.role for part in token.parts}
        if opened and "to" in roles:
            return True
        opened = opened or (bool(roles & {"confirm", "refuse"}) and token.text.endswith(ends))
    return False


# ── cutting ──


def _cut(text: str, words: Words) -> list[_Read] | None:
    """Return a text cut into its longest parts; None with an unknown part."""
    tokens, at, glued = list[_Read](), 0, False
    while at < len(text):
        if text[at] == " ":
            at, glued = at + 1, False
            continue
        token = _next(text, at, glued, words.plan)
        if token is None or len(tokens) == _MOST_PARTS:
            return None
        tokens.append(token)
        at += len(token.text)
        glued = at < len(text) and _inside_word(text, at) and not any(part.prefix for part in token.parts)
    return tokens


def _next(text: str, at: int, glued: bool, plan: PlanWords) -> _Read | None:
    """Return the longest part at this place. `glued`: only a suffix may begin here."""
    number = _NUMBER.match(text, at)
    for end in range(min(at + plan.longest, len(text)), number.end() if number else at, -1):
        parts = [part for part in plan.parts.get(text[at:end], ()) if part.suffix or not glued]
        if parts := [part for part in parts if _may_end(text, end, part, plan)]:
            return _Read(text[at:end], parts, "")
    if number is not None:
        ends = not glued and _may_end(text, number.end(), None, plan)
        return _Read(number[0], (), "d") if ends and _is_short(number[0]) else None
    if text[at] == ",":
        return _Read(",", (), ",")
    if text[at] in _DASHES and text[at - 1 : at].isdigit() and text[at + 1 : at + 2].isdigit():
        return _Read(text[at], (), "t")
    return None


def _is_short(number: str) -> bool:
    """Return True for a number in the form of an item: 7 and 10, but not 007 and 1000."""
    return len(number) <= len(str(MOST_ITEMS)) and not number.startswith("0")


def _may_end(text: str, end: int, part: PlanPart | None, plan: PlanWords) -> bool:
    """Return True if `part`, or a number for None, may end at this place of the text."""
    if not _inside_word(text, end):
        return True
    if text[end - 1].isdigit() and text[end].isdigit():
        return False
    return (part is not None and part.prefix) or text.startswith(plan.suffixes, end)


def _inside_word(text: str, at: int) -> bool:
    """Return True if the characters before and at this place belong to one word."""
    return 0 < at < len(text) and all(unicodedata.category(char)[0] in "LMN" for char in text[at - 1 : at + 1])


# ── meaning ──


def _meanings(way: Sequence[tuple[str, int]], items: int) -> Iterator[Selection | None]:
    """Yield the meaning of each matching pattern; None for a pattern without valid items of this plan."""
    letters = "".join(letter for letter, _ in way)
    for pattern in _patterns():
        match = pattern.fullmatch(letters)
        if match is not None:
            yield _meaning(match, way, items)


def _meaning(match: re.Match[str], way: Sequence[tuple[str, int]], items: int) -> Selection | None:
    everything = frozenset(range(1, items + 1))
    named: dict[str, frozenset[int]] = {}
    for name, letters in match.groupdict().items():
        if letters is None:
            continue
        if name in ("all", "none"):
            if letters in "BW" and items != LEAST_ITEMS:
                return None
            named[name] = everything
            continue
        numbers = _numbers(way[match.start(name) : match.end(name)], items)
        if numbers is None:
            return None
        named[name.partition("_")[0]] = numbers
    refused = named.get("none") or named.get("no") or named.get("but") or frozenset()
    confirmed = named["all"] - refused if "all" in named else named.get("yes", frozenset())
    if confirmed & refused or ("all" in named and not confirmed):
        return None
    return Selection(confirmed, refused, everything="all" in named)


def _numbers(way: Sequence[tuple[str, int]], items: int) -> frozenset[int] | None:
    """Return the listed items; None with a repeated item or an item outside the plan."""
    found: list[int] = []
    backward = False
    until = False
    for letter, number in way:
        if letter == "t":
            until = True
        elif letter == "d" and until:
            backward = backward or number <= found[-1]
            found += range(found[-1] + 1, number + 1)
            until = False
        elif letter == "d":
            found.append(number)
        elif letter == "p":
            found.append(number if number > 0 else items)
        elif letter == "g":
            found += range(1, number + 1) if number > 0 else range(items + number + 1, items + 1)
    if backward or len(set(found)) != len(found) or not set(found) <= set(range(1, items + 1)):
        return None
    return frozenset(found)
