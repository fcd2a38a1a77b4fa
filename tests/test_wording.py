"""The gateway's own sentences: the same ones in every language, each with the same places for values."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from string import Formatter

import pytest

import gateway
from gateway.wording import FALLBACK, LANGUAGES, clock_time, duration, listing, say

UNITS = {
    "en": ("day days", "hour hours", "minute minutes", "second seconds"),
    "es": ("día días", "hora horas", "minuto minutos", "segundo segundos"),
    "pt": ("dia dias", "hora horas", "minuto minutos", "segundo segundos"),
}
AFTERNOON = datetime(2026, 3, 1, 14, 2, 59, tzinfo=UTC)
ALERT = {"pressed_ok", "pressed_no", "one_moment", "not_yours", "not_here", "unknown_button", "still_waiting"}


def places(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def said() -> Iterator[tuple[str, ast.Call]]:
    """Every call of `say` in the gateway whose sentence is named outright."""
    for file in Path(gateway.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="say"), args=[ast.Constant(value=str(name)), *_]):
                    yield f"{file.name}:{node.lineno} {name}", node
                case _:
                    pass


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - {FALLBACK}))
def test_every_language_has_every_sentence_with_the_same_places(language: str) -> None:
    theirs, ours = LANGUAGES[language], LANGUAGES[FALLBACK]
    assert list(theirs) == list(ours)
    assert {name: places(theirs[name]) for name in ours} == {name: places(ours[name]) for name in ours}


def test_every_sentence_that_is_said_exists_and_gets_its_values() -> None:
    for where, call in said():
        name = ast.literal_eval(call.args[0])
        assert name in LANGUAGES[FALLBACK], f"{where}: no such sentence, add it to gateway/wording/*.toml"
        given = {keyword.arg for keyword in call.keywords}
        assert None in given or places(LANGUAGES[FALLBACK][name]) <= given, f"{where}: a value is missing"


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_preview_ends_its_sentence_whatever_it_ends_with(language: str) -> None:
    assert [sentence for sentence in LANGUAGES[language].values() if re.search(r"\{preview\}.", sentence)] == []


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_what_answers_a_press_is_plain_and_fits_telegrams_alert(language: str) -> None:
    """200 characters: https://core.telegram.org/bots/api#answercallbackquery."""
    for name, sentence in LANGUAGES[language].items():
        if name in ALERT or name.startswith("already_"):
            assert len(sentence) <= 200
            assert not re.search(r"[*_`{}\n]", sentence)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_nobody_is_told_to_type_a_word_that_carriers_act_on(language: str) -> None:
    carriers = r"\b(STOP|STOPALL|UNSUBSCRIBE|CANCEL|END|QUIT|START|YES|UNSTOP|HELP|INFO)\b"
    assert [sentence for sentence in LANGUAGES[language].values() if re.search(carriers, sentence)] == []


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "Done: INV-42"),
        ("es", "Hecho: INV-42"),
        ("es-MX", "Hecho: INV-42"),
        ("pt_BR", "Feito: INV-42"),
        ("PT", "Feito: INV-42"),
        ("tlh", "Done: INV-42"),
        ("", "Done: INV-42"),
        (None, "Done: INV-42"),
    ],
)
def test_a_region_falls_back_to_its_language_and_an_unknown_language_to_english(
    language: str | None, sentence: str
) -> None:
    assert say("done", language, preview="INV-42") == sentence


def test_values_are_put_in_as_they_are() -> None:
    assert say("done", "en", preview="{name} {0}") == "Done: {name} {0}"


def test_a_sentence_or_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="no_such_sentence"):
        say("no_such_sentence", "en")
    with pytest.raises(KeyError, match="preview"):
        say("done", "en")


@pytest.mark.parametrize(
    ("seconds", "language", "text"),
    [
        (60, "en", "1 minute"),
        (119, "en", "1 minute and 59 seconds"),
        (899, "en", "14 minutes"),
        (900, "en", "15 minutes"),
        (900, "es-AR", "15 minutos"),
        (900, "pt-BR", "15 minutos"),
        (90, "pt", "1 minuto e 30 segundos"),
        (5400, "es", "1 hora y 30 minutos"),
        (86_400, "en", "1 day"),
        (90_061, "en", "1 day and 1 hour"),
        (3_601, "en", "1 hour"),
        (59.9, "en", "59 seconds"),
        (0, "en", "0 seconds"),
        (-5, "en", "0 seconds"),
        (1800, "tlh", "30 minutes"),
    ],
)
def test_a_duration_in_words_never_says_more_than_it_is(seconds: float, language: str, text: str) -> None:
    assert duration(seconds, language) == text


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_unit_has_its_word_in_every_language(language: str) -> None:
    for length, words in zip((86_400, 3_600, 60, 1), UNITS[language], strict=True):
        one, many = words.split()
        assert duration(length, language) == f"1 {one}"
        assert [duration(count * length, language) for count in (2, 7, 20)] == [
            f"{count} {many}" for count in (2, 7, 20)
        ]
    day, days, hour, hours = (word for words in UNITS[language][:2] for word in words.split())
    assert duration(400 * 86_400, language) == f"400 {days}"
    assert duration(90_000, language) == listing([f"1 {day}", f"1 {hour}"], language)
    assert duration(2 * 90_000, language) == listing([f"2 {days}", f"2 {hours}"], language)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_no_duration_is_said_in_the_name_of_a_unit(language: str) -> None:
    said = [duration(sign * 1.7**power, language) for power in range(60) for sign in (1, -1)]
    assert not [text for text in said if "duration" in text or not re.fullmatch(r"\d+ \w+( \w+ \d+ \w+)?", text)]


def test_a_time_names_its_zone() -> None:
    assert {clock_time(AFTERNOON, language) for language in LANGUAGES} == {"14:02 UTC"}
    assert clock_time(AFTERNOON.astimezone(timezone(timedelta(hours=-3), "BRT")), "pt") == "11:02 BRT"


def test_a_list_reads_as_one_says_it() -> None:
    assert [listing(["Ana", "Bob"], language) for language in ("en", "es", "pt")] == [
        "Ana and Bob",
        "Ana y Bob",
        "Ana e Bob",
    ]
    assert listing([], "en") == ""


def test_nothing_is_read_once_a_bot_runs() -> None:
    """Sentences are read at import, the rest when a bot is entered, in a thread: a turn never waits for the disk."""
    program = """
import asyncio, datetime, sys
from gateway import Agent, ChannelAgent
from gateway.wording import LANGUAGES, clock_time, duration, listing, say

opened = []

async def main():
    async with ChannelAgent(Agent(provider="demo")):
        sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event in ("open", "import") else None)
        for language in LANGUAGES:
            say("greeting", language), duration(90, language), listing("abc", language)
            clock_time(datetime.datetime.now(datetime.UTC), language)
        seen = list(opened)
    return seen

seen = asyncio.run(main())
sys.exit(str(seen) if seen else 0)
"""
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 0, run.stderr
