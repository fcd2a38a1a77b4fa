"""A phrase with a verb answers only a question of the same verb."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from gateway.pending import VERBS, ReplyParser
from gateway.pending.reading import read_code, reads_as_answer
from gateway.pending.words import verb_of
from gateway.tools import Confirm
from gateway.tools.confirm import NO_VERBS

PARSER = ReplyParser()
CORPUS = tomllib.loads((Path(__file__).parent / "corpus" / "verbs.toml").read_text(encoding="utf-8"))
SAID: dict[str, list[tuple[str, str, str]]] = CORPUS["said"]


def misread(verb: str | None, cases: Iterable[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """The cases of a language, a text and its meaning that are read otherwise."""
    return [(lang, text) for lang, text, means in cases if PARSER.classify(text, lang, verb=verb) != means]


@pytest.mark.parametrize("verb", SAID)
def test_a_phrase_counts_for_its_own_verb_alone(verb: str) -> None:
    assert misread(verb, SAID[verb]) == []
    # "keep it" is a no to whatever else is asked
    unclear = [(lang, text, "unclear") for lang, text, _ in SAID[verb] if "keep" not in text]
    assert {other: misread(other, unclear) for other in (*VERBS - {verb}, None) if misread(other, unclear)} == {}


@pytest.mark.parametrize("verb", [*sorted(VERBS), None])
def test_a_word_without_a_verb_counts_for_every_question(verb: str | None) -> None:
    assert misread(verb, CORPUS["plain"]) == []


@pytest.mark.parametrize("verb", sorted(NO_VERBS))
def test_a_question_whose_verb_is_a_no_is_not_refused_by_one(verb: str) -> None:
    """Said to "Cancel the order?", "drop it" may be a yes."""
    doubtful = [(lang, text, "unclear") for lang, text in CORPUS["no_class"]]
    assert misread(verb, doubtful) == []
    assert misread("pay", [(lang, text, "cancel") for lang, text in CORPUS["no_class"]]) == []
    assert misread(verb, CORPUS["plain_no"]) == []
    offered = [("en", "no, keep it", "cancel"), ("en", "No, leave it as it is", "cancel")]
    assert misread(verb, offered if verb not in ("keep", "leave") else [(*row[:2], "unclear") for row in offered]) == []


def test_the_verb_of_the_question_is_no_way_to_refuse_it() -> None:
    no_words = CORPUS["no_words"]
    assert {verb for verb, _ in no_words} <= NO_VERBS
    assert [text for verb, text in no_words if misread(verb, [("en", text, "unclear")])] == []
    assert misread("pay", [("en", text, "cancel") for _, text in no_words]) == []


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_verb_beside_a_code_must_be_the_questions(verb: str) -> None:
    code = read_code("yes, delete it K7P3", "en", verb=verb)
    assert (code is not None) == (verb == "delete")
    assert read_code("OK K7P3", "en", verb=verb) == ("K7P3", "confirm")


def test_any_verb_has_the_shape_of_an_answer() -> None:
    assert all(reads_as_answer(text, "en") for text in ("yes, pay it", "sim", "OK FM63"))
    assert reads_as_answer("puedes borrarlo", "es")
    assert not reads_as_answer("pay it tomorrow", "en")


def test_the_first_word_of_a_template_is_its_verb() -> None:
    questions = CORPUS["questions"]
    assert [case for case in questions if (verb_of(case[1], case[0]) or "") != case[2]] == []


def test_an_unknown_verb_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'delete'\? Known: approve, archive"):
        Confirm("Delete?", verb="delet")
