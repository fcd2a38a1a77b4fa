"""A phrase with a verb answers only a question of the same verb."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gateway.pending import VERBS, ReplyParser
from gateway.pending.reading import read_code, reads_as_answer
from gateway.pending.words import verb_of
from gateway.tools import Confirm
from gateway.tools.confirm import NO_VERBS

PARSER = ReplyParser()
SAID: dict[str, list[tuple[str, str, str]]] = {
    "delete": [
        ("en", "yes, delete it", "confirm"),
        ("es", "puedes borrarlo", "confirm"),
        ("pt", "pode apagar", "confirm"),
        ("en", "don't delete it", "cancel"),
    ],
    "pay": [
        ("en", "yes, pay it", "confirm"),
        ("es", "sí, págalo", "confirm"),
        ("es", "puedes pagarlo", "confirm"),
        ("pt", "pode pagar", "confirm"),
        ("en", "don't pay it", "cancel"),
    ],
    "send": [
        ("en", "yes, send them", "confirm"),
        ("en", "yes send it", "confirm"),
        ("es", "puedes enviarlo", "confirm"),
        ("es", "sí, mándala", "confirm"),
        ("pt", "pode enviar", "confirm"),
        ("en", "don't send it", "cancel"),
    ],
    "restore": [
        ("en", "yes, restore it", "confirm"),
        ("es", "sí, restáuralo", "confirm"),
        ("pt", "sim, pode restaurar", "confirm"),
    ],
    "cancel": [
        ("en", "yes, cancel it", "confirm"),
        ("es", "sí, cancélalo", "confirm"),
        ("pt", "sim, pode cancelar", "confirm"),
        ("en", "no, keep it", "cancel"),
    ],
    "publish": [("en", "yes, publish it", "confirm"), ("pt", "pode publicar", "confirm")],
    "refund": [("en", "yes refund it", "confirm"), ("es", "puedes reembolsarlo", "confirm")],
}
PLAIN = [
    ("en", "yes", "confirm"),
    ("en", "go ahead", "confirm"),
    ("en", "yes, do it", "confirm"),
    ("en", "no", "cancel"),
    ("es", "sí", "confirm"),
    ("es", "adelante", "confirm"),
    ("es", "mejor no", "cancel"),
    ("pt", "sim", "confirm"),
    ("pt", "prossiga", "confirm"),
    ("pt", "agora não", "cancel"),
]


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
    assert misread(verb, PLAIN) == []


NO_WORDS = [
    ("cancel", "cancel it"),
    ("cancel", "cancel"),
    ("stop", "stop it"),
    ("reject", "reject it"),
    ("reject", "decline"),
    ("skip", "skip it"),
    ("drop", "drop it"),
    ("keep", "keep it"),
    ("leave", "leave it"),
]


def test_the_verb_of_the_question_is_no_way_to_refuse_it() -> None:
    assert {verb for verb, _ in NO_WORDS} <= NO_VERBS
    assert [text for verb, text in NO_WORDS if misread(verb, [("en", text, "unclear")])] == []
    assert misread("pay", [("en", text, "cancel") for _, text in NO_WORDS]) == []


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_verb_beside_a_code_must_be_the_questions(verb: str) -> None:
    code = read_code("yes, delete it K7P3", "en", verb=verb)
    assert (code is not None) == (verb == "delete")
    assert read_code("OK K7P3", "en", verb=verb) == ("K7P3", "confirm")


def test_any_verb_has_the_shape_of_an_answer() -> None:
    assert all(reads_as_answer(text, "en") for text in ("yes, pay it", "sim", "OK FM63"))
    assert reads_as_answer("puedes borrarlo", "es")
    assert not reads_as_answer("pay it tomorrow", "en")


QUESTIONS = [
    ("en", "Pay invoice {x}?", "pay"),
    ("es", "¿Pagar la factura {x}?", "pay"),
    ("pt", "Pagar a fatura?", "pay"),
    ("pt", "Delete invoice {x}?", "delete"),
    ("en", "Cancel order {x}?", "cancel"),
    ("en", "Really?", None),
    ("de", "Löschen?", "delete"),
    ("de", "Rechnung löschen?", None),
    ("ja", "削除しますか？", "delete"),
]


def test_the_first_word_of_a_template_is_its_verb() -> None:
    assert [case for case in QUESTIONS if verb_of(case[1], case[0]) != case[2]] == []


def test_an_unknown_verb_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'delete'\? Known: approve, archive"):
        Confirm("Delete?", verb="delet")
