"""Parsing the words for selecting items of a plan: the table `plan` of a word file, explained in README.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final, get_args

from gateway.pending.words.table import UNSPACED, Common, Piece, PlanPart, PlanRole, PlanWords, Words, spellings, texts

MOST_ITEMS: Final = 10
"""The most items of a plan."""
_MADE: Final = frozenset[PlanRole]({"yes", "comma_yes", "no", "place", "group"})
"""Roles without a list of their own, derived from the answers, the ordinals and the numbers."""
_LISTS: Final[tuple[PlanRole, ...]] = tuple(role for role in get_args(PlanRole) if role not in _MADE)
_OTHER_KEYS: Final = frozenset({"ordinals", "place", "last", "numbers", "first_n", "last_n", "unclear"})
_NEEDED: Final = (
    ("all",),
    ("none",),
    ("only", "only_after"),
    ("except", "except_after"),
    ("not", "not_alone", "not_after"),
    ("and",),
    ("last",),
    ("place",),
    ("first_n",),
    ("last_n",),
)
"""The required lists of a table. A single list of each group suffices."""
_TOGETHER: Final[tuple[frozenset[PlanRole], ...]] = (
    frozenset({"yes", "comma_yes", "confirm", "confirm_after"}),
    frozenset({"no", "refuse", "not", "not_alone", "not_after", "but_not", "except"}),
    frozenset({"only", "only_after"}),
    frozenset({"item", "item_after", "to"}),
)
"""Roles allowed together for the same text. The grammar distinguishes these roles by position."""
_CONFIRMS: Final = frozenset[PlanRole](
    {"yes", "comma_yes", "confirm", "confirm_after", "only", "only_after", "all", "both"}
)
_REFUSES: Final = frozenset[PlanRole]({"no", "refuse", "none", "neither", "not", "not_alone", "not_after", "but_not"})


def plan_of(
    source: Mapping[str, Any],
    lang: str,
    common: Common,
    pieces: Mapping[str, frozenset[Piece]],
    other: tuple[str, ...],
) -> PlanWords:
    """Return the words for selecting items. Raises ValueError for a table that breaks the form.

    `pieces` are the answers of the language. `other` are the beginnings of a spelling with another meaning.
    """
    if source:
        _check_keys(source, lang)
    found: dict[str, set[PlanPart]] = defaultdict(set)
    for text, part in (*_listed(common.plan, lang), *_listed(source, lang), *_counted(source, lang)):
        for spelling in spellings(text):
            if spelling == text or not spelling.startswith(other):
                found[spelling].add(part)
    inside = lang in UNSPACED
    found[common.with_code["confirm"]].add(PlanPart("yes", 0, inside, inside))
    for text, part in _answers(pieces, lang):
        if all(each.role not in ("place", "group") for each in found[text]):  # Italian "nono", the ninth
            found[text].add(part)
    unclear = frozenset(spelling for text in texts(source, lang, "unclear") for spelling in spellings(text))
    return PlanWords(
        parts={text: frozenset(parts) for text, parts in found.items()},
        longest=max(map(len, found)),
        suffixes=tuple(sorted(text for text, parts in found.items() if any(part.suffix for part in parts))),
        unclear=unclear,
        supported=bool(source),
    )


def _check_keys(source: Mapping[str, Any], lang: str) -> None:
    unknown = source.keys() - {*_LISTS, *_OTHER_KEYS}
    missing = ["/".join(keys) for keys in _NEEDED if not any(source.get(key) for key in keys)]
    if unknown or missing:
        raise ValueError(f"{lang}.toml: plan: unknown {sorted(unknown)}, missing {missing}.")
    for key, least in (("ordinals", 1), ("numbers", 2)):
        if len(source[key]) != MOST_ITEMS - least + 1:
            raise ValueError(f"{lang}.toml: plan: {key} has no line for each of {least} to {MOST_ITEMS}.")


def _listed(source: Mapping[str, Any], lang: str) -> Iterator[tuple[str, PlanPart]]:
    """Yield the texts of the plain lists. A hyphen at the beginning or the end marks a part of a word."""
    spaced = lang not in UNSPACED
    for role in _LISTS:
        for text in texts(source, lang, role):
            suffix, prefix = text.startswith("-"), text.endswith("-")
            yield text.strip("-"), PlanPart(role, 0, suffix or not spaced, prefix or not spaced)


def _counted(source: Mapping[str, Any], lang: str) -> Iterator[tuple[str, PlanPart]]:
    """Yield the texts of a single item by its place, and of the first and the last items."""
    inside = lang in UNSPACED
    for text in texts(source, lang, "last"):
        yield text, PlanPart("place", -1, inside, inside)
    places = list(texts(source, lang, "place"))
    for number, line in enumerate(source.get("ordinals", ()), 1):
        part = PlanPart("place", number, inside, inside)
        for index, forms in enumerate(line.split("/")):
            slot = f"{{{index}}}"
            for form, place in product(texts({"forms": [forms]}, lang, "forms"), places):
                if slot in place:
                    yield place.replace(slot, form), part
    groups = [(sign, text) for key, sign in (("first_n", 1), ("last_n", -1)) for text in texts(source, lang, key)]
    for count, line in enumerate(source.get("numbers", ()), 2):
        for word, (sign, text) in product((str(count), *texts({"number": [line]}, lang, "number")), groups):
            yield text.replace("{n}", word), PlanPart("group", sign * count, inside, inside)


def _answers(pieces: Mapping[str, frozenset[Piece]], lang: str) -> Iterator[tuple[str, PlanPart]]:
    """Yield the plain yes and no of a single word."""
    inside = lang in UNSPACED
    for text, read in pieces.items():
        if " " in text or (len(text) == 1 and not inside):
            continue
        heads = [piece for piece in read if piece.role in ("head", "comma head") and not piece.no_verbs]
        if not heads or len({piece.intent for piece in read}) > 1:
            continue
        comma = any(piece.role == "comma head" for piece in heads)
        role: PlanRole = "no" if heads[0].intent == "cancel" else "comma_yes" if comma else "yes"
        yield text, PlanPart(role, 0, inside, inside)


def check_plan(words: Words) -> None:
    """Raise ValueError, naming the text, if the words for selecting items contradict each other or the answers."""
    for text, parts in words.plan.parts.items():
        roles = {part.role for part in parts}
        if len(roles) > 1 and not any(roles <= family for family in _TOGETHER):
            raise ValueError(f"{words.language}.toml: plan: {text!r} is all of {sorted(roles)}. Keep one of them.")
        if len({(part.role, part.number) for part in parts}) > len(roles):
            raise ValueError(f"{words.language}.toml: plan: {text!r} has more than one number.")
        said = {piece.intent for piece in words.pieces.get(text, ())}
        if (roles & _CONFIRMS and "cancel" in said) or (roles & _REFUSES and "confirm" in said):
            raise ValueError(f"{words.language}.toml: plan: {text!r} is read as the opposite answer.")
