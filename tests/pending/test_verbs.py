"""A phrase with a verb answers only a question of the same verb."""

from __future__ import annotations

import contextlib
import random
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest

from gateway import Agent, ChannelAgent, tool
from gateway.config.options import WrongOption
from gateway.pending import VERBS, ReplyParser
from gateway.pending.folding import fold
from gateway.pending.reading import read_code, reads_as_answer
from gateway.pending.words import verb_of, words_of
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools import Confirm, unclear
from gateway.tools.confirm import NO_VERBS
from gateway.wording import LANGUAGES, Tone, Wording, say, speaking
from tests.stored import action_of

PARSER = ReplyParser()
FOLDER = Path(__file__).parent / "corpus"
CORPUS = tomllib.loads((FOLDER / "verbs.toml").read_text(encoding="utf-8"))
ENDING = tomllib.loads((FOLDER / "ending.toml").read_text(encoding="utf-8"))
ENDS = ("cancel", "close", "drop", "leave", "reject", "skip", "stop", None)
"""Verbs of questions about ending something, and the unknown verb, possibly "pause"."""
DRAWN = 30
"""The daily drawn texts with a place for a verb."""
SAID: dict[str, list[tuple[str, str, str]]] = CORPUS["said"]


def misread(verb: str | None, cases: Iterable[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """Return the misread cases, each of a language, a text and a meaning."""
    return [(lang, text) for lang, text, means in cases if PARSER.classify(text, lang, verb=verb) != means]


@pytest.mark.parametrize("verb", SAID)
def test_a_phrase_counts_for_its_own_verb_alone(verb: str) -> None:
    assert misread(verb, SAID[verb]) == []
    # "keep it" is a no to any other question
    unclear = [(lang, text, "unclear") for lang, text, _ in SAID[verb] if "keep" not in text]
    assert {other: misread(other, unclear) for other in (*VERBS - {verb}, None) if misread(other, unclear)} == {}


@pytest.mark.parametrize("verb", [*sorted(VERBS), None])
def test_a_word_without_a_verb_counts_for_every_question(verb: str | None) -> None:
    assert misread(verb, CORPUS["plain"]) == []


@pytest.mark.parametrize("verb", sorted(NO_VERBS))
def test_question_with_a_no_as_verb_is_not_refused_by_a_no(verb: str) -> None:
    """Said to "Cancel the order?", "drop it" may be a yes."""
    doubtful = [(lang, text, "unclear") for lang, text in CORPUS["no_class"]]
    assert misread(verb, doubtful) == []
    assert misread("pay", [(lang, text, "cancel") for lang, text in CORPUS["no_class"]]) == []
    assert misread(verb, CORPUS["plain_no"]) == []
    offered = [("en", "no, keep it", "cancel"), ("en", "No, leave it as it is", "cancel")]
    assert misread(verb, offered if verb not in ("keep", "leave") else [(*row[:2], "unclear") for row in offered]) == []


@pytest.mark.nightly
def test_no_phrase_to_go_on_is_a_yes_to_a_question_that_ends(lang: str) -> None:
    """`test_to_go_on_is_no_yes_to_a_question_that_ends` draws some of these phrases each day."""
    phrases = going_on(lang, words_of(lang).slots)
    assert len(phrases) >= len(ENDING["words"][lang])
    assert [(text, verb) for text, verb in phrases if PARSER.classify(text, lang, verb=verb) == "confirm"] == []


def test_to_go_on_is_no_yes_to_a_question_that_ends(lang: str) -> None:
    """Said to "Stop the delivery?", "continue" may be a no: phrases of the tables with this kind of word."""
    said, texts = ENDING["said"][lang], sorted(words_of(lang).slots)
    phrases = going_on(lang, random.Random(lang).sample(texts, min(DRAWN, len(texts))))
    phrases += [(text, verb) for text in said for verb in ENDS]
    assert [(text, verb) for text, verb in phrases if PARSER.classify(text, lang, verb=verb) == "confirm"] == []
    assert [text for text in said if PARSER.classify(text, lang, verb="pay") == "cancel"] == []
    assert [text for text in said if read_code(f"{text} K7P3", lang, verb="stop") is not None] == []


def going_on(lang: str, texts: Iterable[str]) -> list[tuple[str, str | None]]:
    """The phrases of the tables with a word for going on, and the verb of the question.

    `texts`: the phrases with a place for a verb.
    """
    words = words_of(lang)
    stems = [fold(f"|{stem}|").replace("| ", " ").replace(" |", " ").strip("|") for stem in ENDING["words"][lang]]
    phrases: list[tuple[str, str | None]] = [
        (text, "stop") for text, found in words.pieces.items() if any(piece.intent == "confirm" for piece in found)
    ]
    phrases += [
        (text.replace(f"{{{form.name}}}", shape), form.verb)
        for text in texts
        for shape, forms in words.forms.items()
        for form in forms
        if form.verb in ENDS and f"{{{form.name}}}" in text
    ]
    return [(text, verb) for text, verb in phrases if any(stem in f" {text} " for stem in stems)]


def test_not_wanting_is_unclear_to_a_question_that_ends(lang: str) -> None:
    """Said to "Cancel the order?", "I don't want it" may be a yes."""
    phrases = [(text, verb) for text in ENDING["unwanted"][lang] for verb in ENDS if verb is not None]
    assert [(text, verb) for text, verb in phrases if PARSER.classify(text, lang, verb=verb) != "unclear"] == []
    assert any(PARSER.classify(text, lang, verb="pay") == "cancel" for text in ENDING["unwanted"][lang])


@pytest.mark.parametrize("spoken", sorted(set(LANGUAGES) - {"fr"}))
def test_the_buttons_of_a_question_that_ends_may_be_typed(spoken: str) -> None:
    """French "Oui, le faire" is no whole answer."""
    for tone in get_args(Tone):
        with speaking(Wording(tone)):
            buttons = [(spoken, say("button_do", spoken), "confirm"), (spoken, say("button_do_not", spoken), "cancel")]
        assert [(verb, case) for verb in ENDS for case in misread(verb, buttons)] == []


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


def restarting(verb: str) -> ChannelAgent:
    @tool(confirm=Confirm("Restart {service}?", verb=verb))
    def restart(service: str) -> str:
        """Restart a service."""
        return f"{service} is restarted."

    call = ToolCall("restart", {"service": "web"})
    return ChannelAgent(Agent([restart], provider=ScriptedProvider([call, "I see.", "I see."])))


@pytest.mark.parametrize("verb", ["", "7", "re start", "start-", "delete!"])
def test_a_verb_is_a_single_word(verb: str) -> None:
    with pytest.raises(WrongOption, match="should be a single word such as 'restart'"):
        Confirm("Restart?", verb=verb)


def test_an_answer_of_any_language_is_no_verb() -> None:
    taken = []
    for verb in ("ok", "OK", "no", "yes", "end", "start", "quit", "stopall", "sim", "Nein", "да", "はい"):
        with contextlib.suppress(WrongOption):
            restarting(verb)
            taken.append(verb)
    assert taken == []


@pytest.mark.parametrize("verb", ["restart", "neu-starten"])
async def test_a_verb_without_words_takes_plain_answers_only(verb: str) -> None:
    read = {}
    for said in ("yes", "yes please", "ok CODE", "no", "yes, restart it", "restart it", "yes, delete it", verb):
        async with ChatDriver(restarting(verb)) as chat:
            await chat.says("ana", "restart web")
            code = chat.last.text.partition("**OK ")[2][:4]
            await chat.says("ana", said.replace("CODE", code))
            [(_, record)] = await chat.engine.context.store.scan("action/")
            read[said] = action_of(record.value).state
    assert read == dict.fromkeys(("yes", "yes please", "ok CODE"), "done") | {"no": "closed"} | dict.fromkeys(
        ("yes, restart it", "restart it", "yes, delete it", verb), "pending"
    )


def test_a_verb_without_words_is_told_as_advice() -> None:
    told = {verb: list(unclear(restarting(verb).agent.reach.values())) for verb in ("restart", "stop")}
    assert [verb for verb, advice in told.items() if any("has no words" in each for each in advice)] == ["restart"]
