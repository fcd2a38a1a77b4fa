"""A yes with more words behind, and words close to an answer."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gateway.pending import ReplyParser
from gateway.pending.reading import continues, is_near_answer, reads_as_answer
from gateway.pending.words import words_of

PARSER = ReplyParser()
CORPUS: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "corpus" / "continuing.toml").read_text(encoding="utf-8")
)


def joined(lang: str, *texts: str) -> str:
    return ("" if not words_of(lang).spaced else " ").join(texts)


def test_every_word_of_changing_and_adding_is_known(lang: str) -> None:
    yes, words = CORPUS["yes"][lang], words_of(lang)
    table = words.continuing
    whole = {
        "change": table.change - table.add - table.prefixes,
        "add": table.add - table.change - table.prefixes,
    }
    assert all(len(texts) >= 4 for texts in whole.values())
    goes_on = [(joined(lang, f"{yes},", text, "INV-7"), kind) for kind, texts in whole.items() for text in texts]
    assert [text for text, kind in goes_on if continues(text, lang) != kind] == []
    assert [text for text, _ in goes_on if PARSER.classify(text, lang, verb="delete") != "unclear"] == []
    instead = [joined(lang, f"{yes},", "INV-7", text) for text in table.instead]
    assert [text for text in instead if continues(text, lang) != "change"] == []


def test_a_word_of_adding_anywhere_begins_no_change(lang: str) -> None:
    """ "Yes, but INV-8 too" adds; in doubt no change begins."""
    yes, words = CORPUS["yes"][lang], words_of(lang)
    table = words.continuing
    adding = sorted((table.add | table.too) - table.prefixes - table.change)
    assert table.too
    assert len(adding) >= 8
    changing = sorted(table.change - table.prefixes)
    texts = [joined(lang, f"{yes},", "INV-7", instead, text) for instead in table.instead for text in adding[:3]]
    texts += [joined(lang, f"{yes},", changing[0], "INV-7", text) for text in adding]
    texts += [joined(lang, f"{yes},", changing[0], text, "INV-7") for text in adding]
    texts += [joined(lang, f"{yes},", text, "8", adding[0]) for text in changing]
    texts += [joined(lang, f"{yes},", changing[0], f"INV-8{text}") for text in table.suffixes]
    assert [text for text in texts if continues(text, lang) == "change"] == []


def test_a_yes_with_a_doubt_or_a_but_is_unclear(lang: str) -> None:
    yes, please, words = CORPUS["yes"][lang], CORPUS["please"][lang], words_of(lang)
    assert len(words.doubts) >= 5
    ends = {*words.doubts, *words.continuing.change, *words.polite_no} - set(CORPUS["idioms"].get(lang, ()))
    texts = [f"{said}{join}{end}" for said in (yes, f"{yes}, {please}") for end in ends for join in (" ", ", ")]
    texts += [f"{doubt} {yes}" for doubt in words.doubts]
    assert [text for text in texts if PARSER.classify(text, lang, verb="delete") == "confirm"] == []


def test_acknowledgement_alone_is_near_and_unclear(lang: str) -> None:
    words, samples = words_of(lang), CORPUS["acknowledges"][lang]
    alone = [text for text in words.acknowledgements if not reads_as_answer(text, lang)]
    assert len(alone) >= len(words.acknowledgements) / 2
    assert [text for text in [*alone, *samples] if PARSER.classify(text, lang, verb="delete") == "confirm"] == []
    assert [text for text in [*alone, *samples] if not is_near_answer(text, lang)] == []
    assert not any(is_near_answer(text, lang) for text in (CORPUS["yes"][lang], CORPUS["please"][lang]))


def test_a_yes_that_goes_on_changes_or_adds() -> None:
    assert [row for row in CORPUS["goes_on"] if (continues(row[1], row[0]) or "") != row[2]] == []


def test_a_number_alone_is_near() -> None:
    assert all(is_near_answer(text, "de") for text in ("2", "#3", "1.", "٣", "100"))
    assert not any(is_near_answer(text, "de") for text in ("2024", "1,3", "2?", "2 days", "", "K7P3"))
