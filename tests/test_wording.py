"""The gateway's own sentences: the same in every language, each with the same places for values."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import pytest
from babel import Locale

import gateway
from channels import Address, Reply
from channels.formatting import GSM, drop_dear_accents
from channels.twilio.render import render_sms
from gateway import wording
from gateway.pending.reading import read_code
from gateway.pending.words import CARRIER_WORDS, safe_words
from gateway.wording import (
    FALLBACK,
    LANGUAGES,
    Tone,
    Wording,
    clock_time,
    direction,
    duration,
    listing,
    say,
    speaking,
)
from gateway.wording.own import worded

UNITS = {
    "ar": ("يومان يوم أيام يومًا", "ساعتان ساعة ساعات", "دقيقتان دقيقة دقائق", "ثانيتان ثانية ثوان"),
    "de": ("Tag Tage", "Stunde Stunden", "Minute Minuten", "Sekunde Sekunden"),
    "en": ("day days", "hour hours", "minute minutes", "second seconds"),
    "es": ("día días", "hora horas", "minuto minutos", "segundo segundos"),
    "fr": ("jour jours", "heure heures", "minute minutes", "seconde secondes"),
    "hi": ("दिन", "घंटा घंटे", "मिनट", "सेकंड"),
    "id": ("hari", "jam", "menit", "detik"),
    "it": ("giorno giorni", "ora ore", "minuto minuti", "secondo secondi"),
    "ja": ("日", "時間", "分", "秒"),
    "nl": ("dag dagen", "uur", "minuut minuten", "seconde seconden"),
    "pl": ("dzień dni", "godzina godziny godzin", "minuta minuty minut", "sekunda sekundy sekund"),
    "pt": ("dia dias", "hora horas", "minuto minutos", "segundo segundos"),
    "ru": ("день дня дней", "час часа часов", "минута минуты минут", "секунда секунды секунд"),
    "tr": ("gün", "saat", "dakika", "saniye"),
    "zh": ("天", "小时", "分钟", "秒钟"),
}
"""The words for a day, an hour, a minute and a second; in Arabic first the dual."""
LENGTHS = (86_400, 3_600, 60, 1)
CHEAP = ("de", "en", "es", "fr", "it", "nl", "pt")
"""Languages within GSM 03.38 in text messages, without some accents."""
DEAR = frozenset("✅🚫⏳❌❔…")
"""The marks around the notes under settled questions. A text message is never a note."""
TONED = sorted(
    f"{file.parent.name}/{file.stem}" for tone in get_args(Tone) for file in Path(wording.__path__[0], tone).glob("*")
)
"""The files with the sentences of a language in the other form of address."""
FILES = [*sorted(LANGUAGES), *TONED]
TELLS = {
    "de": {
        "formal": r"\b(Sie|Ihnen|Ihr|Ihre[mnrs]?)\b",
        "familiar": r"(?i:\b(du|dir|dich|dein(e[mnrs]?)?)\b)|\b((?<![Ii]ch )[Aa]ntworte|[Ss]chreibe?|[Ss]ende|[Ss]ag"
        r"|[Gg]ib|[Ll]ade|[Dd]rücke|[Bb]estätige|brich|warte|versuche|beantworte|[Ff]rage(?= erneut| noch))\b",
    },
    "es": {
        "formal": r"(?i:\b(usted|responda|escriba|envíe|pulse|pregunte|suelte|salude|recargue|añada|espere|dé|tiene"
        r"|hágalo|haga|(pída|envíe|inténte)l[ao]s?|dígame|escríbame)\b)",
        "familiar": r"(?i:\b(tú|ti|te|tu|tus|tuyos|responde|escribe(?! más)|escribes|envía(?!;)|pulsa"
        r"|pregunta(?= otra)|suelta|saluda|recarga|añade|espera(?= un)|da|tienes|quieres|puedes|has|dijiste|hazlo|hagas"
        r"|(píde|envía|inténta)l[ao]s?|dime|escríbeme)\b)",
    },
    "fr": {
        "formal": r"(?i:\b(vous|votre|vos)\b|\b(?!assez\b)\w+ez\b)",
        "familiar": r"(?i:\b(tu|te|toi|ton|ta|tes|t'\w+|écris|(?<!vous )réponds|envoie(?!,)|ajoute|dis|donne|confirme"
        r"|redemande|réessaie|appuie|recharge|dépose|attends)\b)",
    },
    "it": {
        "formal": r"\b(Lei|Le|Suo|Sua|Suoi|Sue)\b|(?i:\b(risponda|scriva|riscriva|invii|ripeta|riprovi|confermi|annulli"
        r"|aggiunga|dica|dia|prema|ricarichi|rilasci|saluti|attenda|provi|desidera)\b)",
        "familiar": r"(?i:\b(tu|te|ti|tuo|tua|tuoi|tue|hai|sei|rispondi|scrivi|scrivimi|riscrivi"
        r"|invia(?= /)|inviali|invialo|ripeti|ripetila|aggiungi|dimmi|premi|ricarica|rilascia|aspetta"
        r"|prova|desideri|fallo)\b)",
    },
    "nl": {"formal": r"(?i:\b(u|uw)\b)", "familiar": r"(?i:\b(je|jij|jou|jouw)\b)"},
    "pt": {"formal": r"(?i:\b(senhora?|a seu respeito|deseja)\b)", "familiar": r"(?i:\bvocês?\b)"},
}
"""Language -> tone -> words that show the tone."""
NEVER = {
    "hi": r"तुम|तेर[ाेी]|\bतू\b",
    "id": r"(?i:\b(kamu|kau|engkau)\b)",
    "pl": r"(?i:\b(twoj\w+|twój|tobie|ciebie|cię|masz|jesteś|napisz|odpowiedz|otrzymasz|napiszesz|naciśnij|odśwież)\b)",
    "ru": r"(?i:\b(ты|теб[ея]|тобой|тво\w+)\b)",
    "tr": r"(?i:\b(sen|sana|seni|senin)\b)",
    "zh": "你",
}
"""Language of one form -> words of the other form."""
NO_ADDRESS = {"de": ("file_lost",), "it": ()}
"""Sentences in which a word of `TELLS` means somebody else: the file, "sie"."""
AFTERNOON = datetime(2026, 3, 1, 14, 2, 59, tzinfo=UTC)
ALERT = {"pressed_ok", "pressed_no", "one_moment", "not_yours", "not_here", "unknown_button", "still_waiting"}


def places(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def written(file: str) -> dict[str, Any]:
    """Return the unchanged file of a language, as ``de`` or ``familiar/de``."""
    return tomllib.loads((Path(wording.__path__[0]) / f"{file}.toml").read_text(encoding="utf-8"))


def variants(file: str) -> Iterator[tuple[str, str]]:
    """Yield every sentence with the name, in each form."""
    for name, sentence in written(file).items():
        yield from ((name, form) for form in (sentence.values() if isinstance(sentence, dict) else [sentence]))


def sms(text: str) -> str:
    """Return the text of one of our sentences in an SMS prompt."""
    place = Address(channel="sms", account="+15550001111", place="+15557654321")
    (part,) = render_sms(place, Reply(text=drop_dear_accents(text), exact=True))
    return str(part.arguments["body"])


def stated(text: str, language: str) -> int:
    """Return the seconds of a duration in words."""
    seconds, rest = 0, text
    for length, words in zip(LENGTHS, UNITS[language], strict=True):
        pattern = "|".join(sorted(words.split(), key=len, reverse=True))
        for found in re.finditer(rf"(?:(\d+) ?)?({pattern})", rest):
            alone = 2 if language == "ar" and found[2] == words.split()[0] else 1
            assert found[1] or language == "ar"
            seconds += length * int(found[1] or alone)
        rest = re.sub(rf"(?:\d+ ?)?({pattern})", "", rest)
    assert re.fullmatch(r"\D{0,3}", rest.strip()), text
    return seconds


def said() -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of `say` in the gateway with a literal name."""
    for file in Path(gateway.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="say"), args=[ast.Constant(value=str(name)), *_]):
                    yield f"{file.name}:{node.lineno} {name}", node
                case _:
                    pass


def wrong(file: str, is_wrong: Callable[[str, str], Any]) -> list[str]:
    """Return the names of the wrong sentences. `is_wrong` gets name and text."""
    return [name for name, sentence in variants(file) if is_wrong(name, sentence)]


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_language_has_every_sentence_and_plural_form(language: str) -> None:
    assert list(LANGUAGES[language]) == list(LANGUAGES[FALLBACK])
    tables = {name: sentence for name, sentence in written(language).items() if isinstance(sentence, dict)}
    categories = Locale.parse(language).plural_form.tags | {"other"}
    plurals = dict.fromkeys(("still_open_many", "standing_given", "standing_pressed", "unknown_repeated"), categories)
    assert {name: set(forms) for name, forms in tables.items()} == plurals
    typed = [spell(word).casefold() for word in safe_words(language) for spell in (str, drop_dear_accents)]
    assert CARRIER_WORDS.isdisjoint(typed)


@pytest.mark.parametrize("file", FILES)
def test_sentences_of_a_file_can_be_said(file: str) -> None:
    """The rules for an author's own sentences hold for ours; some of ours are stricter."""
    ours = LANGUAGES[FALLBACK]
    assert worded(None, {file.rpartition("/")[2]: written(file)})[1] == {}
    # A preview ends its sentence, with any last character. Only the code in brackets may follow.
    assert wrong(file, lambda _, sentence: re.search(r"\{preview\}(?! ?[(（]).", sentence)) == []
    alerts = {name for name in ours if name in ALERT or name.startswith("already_")}
    plain = r"[^*_`{}\n]{0,200}"
    assert wrong(file, lambda name, sentence: name in alerts and not re.fullmatch(plain, sentence)) == []
    # Carriers act on these words.
    carriers = r"\b(STOP|STOPALL|UNSUBSCRIBE|CANCEL|END|QUIT|START|YES|UNSTOP|HELP|INFO)\b"
    assert wrong(file, lambda _, sentence: re.search(carriers, sentence)) == []
    # Joiners of Hindi and Persian; isolates are put around values when it is said.
    hidden = {char for _, sentence in variants(file) for char in sentence if unicodedata.category(char) == "Cf"}
    assert hidden <= {"\u200c", "\u200d"}


# ── the two forms of address ──


@pytest.mark.parametrize("file", TONED)
def test_a_file_of_the_other_tone_has_only_differences(file: str) -> None:
    language, ours = file.rpartition("/")[2], written(file.rpartition("/")[2])
    assert [name for name, sentence in written(file).items() if name not in ours or sentence == ours[name]] == []
    # As in the language's file: the order, so that two files are read side by side.
    assert list(written(file)) == [name for name in ours if name in written(file)], language


@pytest.mark.parametrize("language", sorted(TELLS))
def test_each_sentence_has_the_form_of_address_of_its_file(language: str) -> None:
    """The file of a language has one form of address, and each sentence with a word of it has another in the other."""
    (file,) = (file for file in TONED if file.endswith(f"/{language}"))
    other = file.partition("/")[0]
    (own,) = set(TELLS[language]) - {other}
    assert wrong(language, lambda name, text: re.search(TELLS[language][other], text)) == [], f"not {own}"
    assert wrong(file, lambda name, text: re.search(TELLS[language][own], text)) == [], f"not {other}"
    lacking = wrong(language, lambda name, text: re.search(TELLS[language][own], text) and name not in written(file))
    assert lacking == list(NO_ADDRESS.get(language, ())), f"write these in gateway/wording/{file}.toml too"


@pytest.mark.parametrize("language", sorted(NEVER))
def test_a_language_of_one_form_has_no_other(language: str) -> None:
    assert wrong(language, lambda name, text: re.search(NEVER[language], text)) == []


def test_a_tone_is_spoken_where_a_language_has_two() -> None:
    cases: list[tuple[str, Tone | None, str]] = [
        ("de", None, "Nichts wartet auf Ihre Antwort."),
        ("de-AT", "formal", "Nichts wartet auf Ihre Antwort."),
        ("de-CH", "familiar", "Nichts wartet auf deine Antwort."),
        ("es", None, "Nada espera tu respuesta."),
        ("es-MX", "formal", "Nada espera su respuesta."),
        ("fr", None, "Rien n'attend votre réponse."),
        ("fr", "familiar", "Rien n'attend ta réponse."),
        ("it", "familiar", "Nulla attende la tua risposta."),
        ("nl", "formal", "Er wacht niets op uw antwoord."),
        ("pt", "formal", "Nada espera a sua resposta."),
        ("en", "formal", "Nothing is waiting for your answer."),
        ("tlh", "familiar", "Nothing is waiting for your answer."),
    ]
    for language, tone, told in cases:
        many = say("still_open_many", language, count=2)
        with speaking(Wording(tone)):
            assert say("pending_none", language) == told, tone
            assert say("still_open_many", language, count=2) == many


def test_a_number_chooses_the_form_of_its_sentence() -> None:
    cases: list[tuple[str, object, str]] = [
        ("en", 1, "Still open: 1 question,"),
        ("en", "2", "Still open: 2 questions,"),
        ("tlh", 0, "Still open: 0 questions,"),
        ("es-MX", 1, "Aún pendiente: 1 pregunta;"),
        ("fr", 0, "Toujours en attente : 0 question, /pending l'affiche"),
        ("pt", 1_000_000, "Ainda em aberto: 1000000 perguntas;"),
        ("pl", 22, "Wciąż otwarte: 22 pytania,"),
        ("pl", 5, "Wciąż otwarte: 5 pytań,"),
        ("ru", 21, "Ещё открыто: 21 вопрос,"),
        ("ru", "3", "Ещё открыто: 3 вопроса,"),
        ("ar", 2, "ما زال سؤالان مفتوحين (\u20682\u2069)"),
        ("ja", 1, "未回答: 1件"),
    ]
    texts = {case: say("still_open_many", case[0], count=case[1]) for case in cases}
    assert {case: text for case, text in texts.items() if not text.startswith(case[2])} == {}


def test_a_missing_plural_form_falls_back_to_other() -> None:
    forms = {"one": "{count} thing", "other": "{count} things"}
    with speaking(Wording(own={"pl": {"still_open_many": forms}})):
        told = [say("still_open_many", "pl", count=count) for count in (1, 2, 5)]
    assert told == ["1 thing", "2 things", "5 things"]


def test_every_sentence_that_is_said_exists_and_gets_its_values() -> None:
    for where, call in said():
        name = ast.literal_eval(call.args[0])
        assert name in LANGUAGES[FALLBACK], f"{where}: no such sentence, add it to gateway/wording/*.toml"
        given = {keyword.arg for keyword in call.keywords}
        assert None in given or places(LANGUAGES[FALLBACK][name]) <= given, f"{where}: a value is missing"


@pytest.mark.parametrize("file", [*CHEAP, *TONED])
def test_text_messages_are_in_the_cheap_alphabet(file: str) -> None:
    for name, sentence in variants(file):
        if not name.startswith("page_"):
            assert set(sms(sentence)) - GSM <= DEAR, f"{file} {name}: {set(sms(sentence)) - GSM}"
    language = file.rpartition("/")[2]
    spans = [duration(seconds, language) for seconds in (1, 59, 60, 90, 899, 3_601, 7_300, 86_400, 200_000)]
    assert set(sms(" ".join([*spans, clock_time(AFTERNOON, language)]))) <= GSM


def test_region_falls_back_to_its_language_then_to_english() -> None:
    cases: list[tuple[str | None, str]] = [
        ("en", "Done: INV-42"),
        ("es", "Hecho: INV-42"),
        ("es-MX", "Hecho: INV-42"),
        ("pt_BR", "Feito: INV-42"),
        ("PT", "Feito: INV-42"),
        ("tlh", "Done: INV-42"),
        ("", "Done: INV-42"),
        (None, "Done: INV-42"),
    ]
    assert [case for case in cases if say("done", case[0], preview="INV-42") != case[1]] == []


def test_values_are_put_in_as_they_are() -> None:
    assert say("done", "en", preview="{name} {0}") == "Done: {name} {0}"


def test_a_sentence_or_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="no_such_sentence"):
        say("no_such_sentence", "en")
    for language in ("en", "ar"):
        with pytest.raises(KeyError, match="preview"):
            say("done", language)
        with pytest.raises(KeyError, match="count"):
            say("still_open_many", language)


def test_a_duration_in_words_never_says_more_than_it_is() -> None:
    cases: list[tuple[float, str, str]] = [
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
    ]
    assert [(case, text) for case in cases if (text := duration(case[0], case[1])) != case[2]] == []


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_duration_never_promises_more_time_than_is_left(language: str) -> None:
    around = [
        length * count + more for length in LENGTHS for count in (1, 2, 3, 11, 20, 21, 100) for more in (-1, 0, 1)
    ]
    for seconds in (*range(122), *around, *(int(1.7**power) for power in range(60)), 400 * 86_400, -60):
        text = duration(seconds, language)
        lost = max(seconds, 0) - stated(text, language)
        assert 0 <= lost < (3_600 if seconds >= 86_400 else 60 if seconds >= 120 else 1), (seconds, text)
    # A plain space stands between a number and its unit.
    told = " ".join([clock_time(AFTERNOON, language), *(duration(1.7**power, language) for power in range(30))])
    assert {char for char in told if char.isspace()} == {" "} and "\u2060" not in told
    for length in LENGTHS:
        assert [stated(duration(length * count, language), language) for count in (1, 2, 7, 20)] == [
            length * count for count in (1, 2, 7, 20)
        ]


def test_a_time_names_its_zone() -> None:
    written = {language: clock_time(AFTERNOON, language) for language in LANGUAGES}
    assert written == dict.fromkeys(LANGUAGES, "14:02 UTC") | {"id": "14.02 UTC"}
    assert clock_time(AFTERNOON.astimezone(timezone(timedelta(hours=-3), "BRT")), "pt") == "11:02 BRT"


def test_a_time_has_plain_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babel.dates.format_skeleton", lambda *given, locale: "2:02\u202fPM")
    assert clock_time(AFTERNOON, "en") == "2:02 PM UTC"


def test_a_list_is_joined_by_the_word_of_its_language() -> None:
    assert [listing(["Ana", "Bob"], language) for language in ("en", "es", "pt")] == [
        "Ana and Bob",
        "Ana y Bob",
        "Ana e Bob",
    ]
    assert listing([], "en") == ""


# ── from right to left ──


def test_value_in_a_right_to_left_sentence_is_isolated_once() -> None:
    cases: list[tuple[object, str]] = [
        ("Pay INV-42?", "\u2068Pay INV-42?\u2069"),
        ("`test:bot:ana`", "\u2068`test:bot:ana`\u2069"),
        (-5, "\u2068-5\u2069"),
        ("14:02 UTC", "\u206814:02 UTC\u2069"),
        ("Print \u2068“שלום”\u2069 2 times?", "\u2068Print \u2068“שלום”\u2069 2 times?\u2069"),
        ("دفع INV-42؟", "دفع INV-42؟"),
        ("14 دقيقة", "14 دقيقة"),
        ("\u2068“INV-42”\u2069", "\u2068“INV-42”\u2069"),
        ("\u2068a\u2069 و\u2068b\u2069", "\u2068a\u2069 و\u2068b\u2069"),
        ("\u2068a\u2069, \u2068b\u2069", "\u2068\u2068a\u2069, \u2068b\u2069\u2069"),
        ("/new – بدء\n/pay – دفع", "\u2068/new\u2069 – بدء\n\u2068/pay\u2069 – دفع"),
        ("", ""),
    ]
    sentence = LANGUAGES["ar"]["done"]
    assert [value for value, shown in cases if say("done", "ar", preview=value) != sentence.format(preview=shown)] == []
    assert [value for value, _ in cases if say("done", "es", preview=value) != f"Hecho: {value}"] == []


def test_commands_and_listed_items_are_isolated_in_arabic() -> None:
    assert say("still_open_many", "ar", count=3).endswith(" \u2068/pending\u2069")
    assert say("history_too_long", "ar-EG").count("\u2068/new\u2069") == 1
    assert listing(["a", "b"], "ar") == "\u2068a\u2069 و\u2068b\u2069"
    assert "\u2068" not in duration(5_400, "ar") and listing(["a", "b"], "en") == "a and b"
    told = say("prompt_approvers", "ar", people=listing(["`a:b:c`"], "ar"))
    assert told.count("\u2068") == told.count("\u2069") == 1


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_an_answer_copied_from_a_prompt_is_read(language: str) -> None:
    assert direction(language) == direction(f"{language}-XX") == Locale.parse(language).text_direction
    yes, no = safe_words(language)
    for name in ("prompt_code", "prompt_words", "prompt_words_do"):
        first, second = re.findall(r"\*\*(.+?)\*\*", say(name, language, yes_word=yes, no_word=no, code="K7PA"))
        assert ("\u2068K7PA\u2069" in first and "\u2068K7PA\u2069" in second) is (direction(language) == "rtl")
        assert read_code(first, language) == ("K7PA", "confirm")
        assert read_code(second, language) == ("K7PA", "cancel")


# ── when it is read ──


def test_import_reads_english_only_and_prepare_reads_the_rest() -> None:
    program = """
import sys

opened = set()
sys.addaudithook(lambda event, arguments: opened.add(str(arguments[0])) if event == "open" else None)

def read():
    return {path.rpartition("/")[2] for path in opened if "/wording/" in path and path.endswith(".toml")}

from gateway.wording import LANGUAGES, prepare, resolve, say
assert read() <= {"en.toml"}, read()
assert resolve("pt-BR") == "pt" and len(LANGUAGES) == len(list(LANGUAGES)) and "tlh" not in LANGUAGES
assert read() <= {"en.toml"}, read()
prepare("pt-BR", "tlh")
assert read() == {"en.toml", "pt.toml"}, read()
prepare()
assert read() == {f"{language}.toml" for language in LANGUAGES}, read()
"""
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_language_without_a_file_is_none_of_ours() -> None:
    with pytest.raises(KeyError, match="tlh"):
        LANGUAGES["tlh"]


def test_no_wording_file_is_read_once_a_bot_runs() -> None:
    """The files of a language are read in a thread when a person brings the language: the event loop never waits."""
    program = """
import asyncio, datetime, sys, threading
from gateway import Agent, ChannelAgent
from gateway.assembly import in_memory
from gateway.wording import LANGUAGES, clock_time, duration, listing, say

opened = []

def note(event, arguments):
    if event in ("open", "import") and threading.current_thread() is threading.main_thread():
        opened.append(arguments[0])

async def main():
    async with in_memory(ChannelAgent(Agent(provider="demo"))) as engine:
        sys.addaudithook(note)
        await engine.context.load_languages(*LANGUAGES)
        for language in LANGUAGES:
            say("greeting", language), duration(90, language), listing("abc", language)
            clock_time(datetime.datetime.now(datetime.UTC), language), say("still_open_many", language, count=2)
        seen = list(opened)
    return seen

seen = asyncio.run(main())
sys.exit(str(seen) if seen else 0)
"""
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 0, run.stderr
