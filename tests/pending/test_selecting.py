"""Selecting items of a plan: the table of each language, generated variants, and texts made to be misread."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.pending.reading import MAX_LENGTH, ReplyParser
from gateway.pending.selecting import Selection, read_selection
from gateway.pending.words import common, prepare, words_of
from gateway.pending.words.parsing import check_words, parsed
from gateway.wording import LANGUAGES as WORDED

SUPPORTED = sorted(WORDED)
CORPUS: dict[str, dict[str, list[Any]]] = tomllib.loads(
    (Path(__file__).parent / "corpus" / "selecting.toml").read_text(encoding="utf-8")
)


def selection(confirmed: list[int], refused: list[int]) -> Selection:
    return Selection(frozenset(confirmed), frozenset(refused))


def plain(lang: str) -> list[tuple[str, int]]:
    """The selections without a signature and a mention; both must stand at the edge of a message."""
    return [(text, items) for text, items, *_ in CORPUS[lang]["read"] if "\n" not in text and "@" not in text]


# ── messages of people ──


@pytest.mark.parametrize("lang", SUPPORTED)
def test_selections_of_a_language_are_read(lang: str) -> None:
    words, table = words_of(lang), CORPUS[lang]
    assert len(table["read"]) >= 19
    assert len(table["not_read"]) >= 13
    wrong = [
        (text, said)
        for text, items, confirmed, refused in table["read"]
        if (said := read_selection(text, items, words, "Ana")) != selection(confirmed, refused)
    ]
    assert wrong == []
    answers = [(text, ReplyParser().classify(text, lang), refused) for text, _, _, refused in table["read"]]
    assert [text for text, answer, no in answers if answer != "unclear" and (answer == "confirm") == bool(no)] == []
    assert [text for text in table["not_read"] if read_selection(text, 5, words) is not None] == []


def test_every_wording_language_is_covered() -> None:
    assert sorted(CORPUS) == SUPPORTED


@pytest.mark.parametrize("items", [-1, 0, 1, 11, 100])
def test_plan_has_two_to_ten_items(items: int) -> None:
    assert all(read_selection(text, items, words_of("en")) is None for text in ("1", "all", "none", "the first"))


@pytest.mark.parametrize("lang", ["sv", "ko", "el", "xx"])
def test_language_without_words_has_digits_only(lang: str) -> None:
    words = words_of(lang)
    assert read_selection("1, 3", 3, words) == selection([1, 3], [])
    assert read_selection("yes, #2 & 3", 3, words) == selection([2, 3], [])
    assert read_selection("1-3", 3, words) == selection([1, 2, 3], [])
    assert all(read_selection(text, 3, words) is None for text in ("all", "none", "no 2", "1 and 3", "the first"))


@pytest.mark.parametrize("lang", SUPPORTED)
def test_every_place_and_group_is_read(lang: str) -> None:
    words = words_of(lang)
    for text, part in ((text, part) for text, parts in words.plan.parts.items() for part in parts):
        if part.role in ("both", "neither"):
            assert read_selection(text, 2, words) is not None, text
            assert read_selection(text, 3, words) is None, text
        if text in words.plan.unclear or part.role not in ("place", "group", "all", "none"):
            continue
        first = part.number if part.number > 0 else 11 + part.number
        numbers = {
            "place": range(first, first + 1),
            "group": range(1, part.number + 1) if part.number > 0 else range(first, 11),
            "all": range(1, 11),
        }.get(part.role)
        expected = selection([], [*range(1, 11)]) if numbers is None else selection([*numbers], [])
        assert read_selection(text, 10, words) == expected, text


# ── generated ──


@cache
def mixed(lang: str) -> st.SearchStrategy[str]:
    """Texts of the words of one language, and of numbers and signs, in any order."""
    parts = sorted(words_of(lang).plan.parts)
    numbers = st.sampled_from(["0", "1", "2", "3", "4", "7", "10", "11", "٢", "３"])
    signs = st.sampled_from([",", ".", "-", "#", "&", "?", "👍", "👎", "\n"])
    word = st.one_of(st.sampled_from(parts), numbers, numbers, signs)
    return st.builds(lambda words, join: join.join(words), st.lists(word, max_size=7), st.sampled_from([" ", "", ", "]))


@given(st.sampled_from(SUPPORTED), st.integers(2, 10), st.data())
def test_any_text_names_only_items_of_the_plan(lang: str, items: int, data: st.DataObject) -> None:
    text = data.draw(mixed(lang) | st.text(max_size=MAX_LENGTH + 20))
    said = read_selection(text, items, words_of(lang))
    if said is not None:
        assert said.confirmed | said.refused <= set(range(1, items + 1))
        assert said.confirmed | said.refused
        assert not said.confirmed & said.refused


@given(st.sampled_from(SUPPORTED), st.text("abcdefghijklmnopqrstuvwxyz", min_size=6), st.data())
def test_one_unknown_word_selects_no_item(lang: str, other: str, data: st.DataObject) -> None:
    words = words_of(lang)
    assume(other not in words.plan.parts)
    text, items = data.draw(st.sampled_from(plain(lang)))
    parts = text.split()
    place = data.draw(st.integers(0, len(parts)))
    parts.insert(place, other)
    assert read_selection(" ".join(parts), items, words) is None


def fullwidth(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


def arabic(text: str) -> str:
    return text.translate({ord("0") + digit: chr(0x0660 + digit) for digit in range(10)})


VARIANTS: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "title": str.title,
    "fullwidth": fullwidth,
    "arabic digits": arabic,
    "zero width": "\u200b".join,
    "directed": lambda text: f"\u2067{text}\u2069\u200f",
    "spaced": lambda text: f"\n\t {text.replace(' ', chr(0xA0) + ' ')} \r\n",
    "dotted": lambda text: text if text[-1] in ".!。।" else f"{text}.",
    "exclaimed": lambda text: text if text[-1] in ".!。।" else f"{text}!",
    "marked up": lambda text: f"*_{text}_*",
    "friendly": lambda text: text if text[-1] in "👍👎✅" else f"{text} 🙂",
}


QUESTION_MARKS = "?¿؟;՞⁇？❓"


@pytest.mark.parametrize("lang", SUPPORTED)
def test_every_way_of_typing_selects_alike(lang: str) -> None:
    """A question mark of any script selects no item."""
    words = words_of(lang)
    wrong = [
        (name, text)
        for text, items in plain(lang)
        for name, write in VARIANTS.items()
        if read_selection(write(text), items, words) != read_selection(text, items, words)
    ]
    assert wrong == []
    asked = [
        (question, items)
        for text, items in plain(lang)
        for mark in QUESTION_MARKS
        for question in (f"{text}{mark}", f"{mark} {text}")
    ]
    assert [text for text, items in asked if read_selection(text, items, words) is not None] == []


HOSTILE = [
    "1 " * 99,
    "1," * 99,
    "1, " * 60,
    "but not " * 24,
    "no " * 60,
    "the first " * 20,
    "yes " * 50,
    "1-" * 99,
    "#" * 199,
    "1" * 199,
    "1" * 100_000,
    "2 3 4 5 6 7 8 9 10 " * 10,
    "a\u0300" * 50_000,
    "\ud800" * 50,
]


def test_hostile_texts_select_no_item_at_once() -> None:
    prepare(*SUPPORTED)
    for text in HOSTILE:
        begun = time.process_time()
        for lang in SUPPORTED:
            assert read_selection(text, 10, words_of(lang)) is None
        assert time.process_time() - begun < 1.0, f"{text[:6]!a} x {len(text)}"


# ── languages ──

PLAN = """
typed = { yes = "OUI", no = "NON" }
yes = ["oui"]
no = ["non"]
[plan]
all = ["tout"]
none = ["aucun"]
only = ["juste"]
except = ["sauf"]
not = ["pas"]
and = ["et"]
ordinals = ["un / une", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
place = ["le {0}", "la {1}"]
last = ["le dernier"]
numbers = ["deux", "trois", "4", "5", "6", "7", "8", "9", "10"]
first_n = ["les {n} premiers"]
last_n = ["les {n} derniers"]
"""


def test_another_language_is_only_data() -> None:
    words = parsed(tomllib.loads(PLAN), "fr", common())
    check_words(words, common())
    assert read_selection("oui, le un et la une", 3, words) is None
    assert read_selection("oui, la une et les deux derniers", 4, words) == selection([1, 3, 4], [])
    assert read_selection("tout sauf 2", 3, words) == selection([1, 3], [2])


@pytest.mark.parametrize(
    ("line", "changed", "complaint"),
    [
        ('["tout"]', '["tout", "aucun"]', "'aucun' is all of ['all', 'none']"),
        ('["et"]', '["et", "sauf"]', "'sauf' is all of ['and', 'except']"),
        ('["le dernier"]', '["le b"]', "'le b' has more than one number"),
        ('["aucun"]', '["oui"]', "'oui' is all of ['none', 'yes']"),
        ("and =", "und =", "plan: unknown ['und'], missing ['and']"),
        ('"9", "10"]', '"9"]', "numbers has no line for each of 2 to 10"),
        ('"i", "j"]', '"i"]', "ordinals has no line for each of 1 to 10"),
    ],
)
def test_contradictory_plan_words_are_refused(line: str, changed: str, complaint: str) -> None:
    assert line in PLAN
    with pytest.raises(ValueError, match=re.escape(complaint)):
        check_words(parsed(tomllib.loads(PLAN.replace(line, changed, 1)), "fr", common()), common())
