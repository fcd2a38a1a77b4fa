"""Reading replies: the tables of tests/pending/corpus, generated variants and chat, and texts made to be misread."""

from __future__ import annotations

import random
import re
import threading
import time
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import (
    Address,
    Attachment,
    ButtonPress,
    DeliveryReport,
    Event,
    Message,
    MessageEdited,
    OptOut,
    Person,
    Reaction,
)
from gateway.pending import words
from gateway.pending.folding import fold
from gateway.pending.grammar import readings
from gateway.pending.reading import (
    MAX_LENGTH,
    CodeReply,
    ConfirmParser,
    RegexConfirmParser,
    ReplyParser,
    decides,
    read_code,
    read_refusal,
    read_refused_code,
    reads_as_answer,
    reason_of,
)
from gateway.pending.tokens import make_code
from gateway.pending.words import (
    INTENTS,
    Intent,
    Words,
    common,
    heads,
    languages,
    prepare,
    safe_words,
    words_of,
)
from gateway.pending.words.parsing import check_words, parsed
from gateway.pending.words.version import VERSION
from gateway.tools.confirm import VERBS
from gateway.wording import LANGUAGES as WORDED
from scripts import words as judge

LANGUAGES = ("en", "es", "pt")
"""Languages with a test of every entry."""
PARSER = ReplyParser()
CORPUS = Path(__file__).parent / "corpus"


@cache
def corpus(name: str) -> dict[str, Any]:
    return tomllib.loads((CORPUS / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def phrases(lang: str, intent: Intent) -> Sequence[str]:
    """The plain yes or no, and the phrases without a verb, of one language."""
    words = words_of(lang)
    return sorted(
        text
        for text, pieces in words.pieces.items()
        if not words.says_nothing(text)
        and {(piece.intent, piece.role in ("after", "ack"), piece.verb, piece.no_verbs) for piece in pieces}
        == {(intent, False, None, frozenset[str]())}
    )


def drawn(lang: str, intent: Intent, count: int) -> Sequence[str]:
    """Some of the phrases, always the same."""
    every = phrases(lang, intent)
    return random.Random(7).sample(every, min(count, len(every)))


def misread(lang: str, texts: Iterable[str], means: str) -> list[tuple[str, str]]:
    """Return the texts with another reading, each with the wrong reading."""
    read = ((text, PARSER.classify(text, lang, verb="delete")) for text in texts)
    return [(text, got) for text, got in read if got != means]


# ── messages of people ──


@pytest.mark.ledger("PEND-49", "PEND-50")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_corpus_of_yes_is_read_as_confirm(lang: str) -> None:
    assert misread(lang, corpus(f"deleting/{lang}")["yes"], "confirm") == []


@pytest.mark.ledger("PEND-51", "PEND-70", "PEND-71")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_corpus_of_no_is_read_as_cancel(lang: str) -> None:
    assert misread(lang, corpus(f"deleting/{lang}")["no"], "cancel") == []


@pytest.mark.ledger("PEND-47", "PEND-48", "PEND-70")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_corpus_of_neither_is_read_as_unclear(lang: str) -> None:
    assert misread(lang, corpus(f"deleting/{lang}")["near"], "unclear") == []


@pytest.mark.parametrize("lang", LANGUAGES)
def test_ordinary_chat_is_never_an_answer(lang: str) -> None:
    slots = corpus(f"deleting/{lang}")["slots"]
    sentences = [
        "".join((start, verb, " ", what, end))
        for start, verb, what, end in product(slots["start"], slots["verb"], slots["object"], slots["end"])
    ]
    starts = ("", "yes ", "no, ", "sim, ", "sí ")
    chat = random.Random(20).sample(sentences, 800)
    chat += ["".join(parts) for parts in product(starts, slots["remark"], ("", "!", " 👍"))]
    assert misread(lang, chat, "unclear") == []
    assert [text for text in chat if reads_as_answer(text, lang)] == []


# ── each language ──


def test_every_language_is_read(lang: str) -> None:
    """No false confirmation, no false cancellation, and nine in ten of the plain texts.

    If the index or the table of the documents does not fit: `make words`.
    """
    for folder, least in (("", 0.95), (judge.HELD, 0.88)):
        judgement = judge.judged(lang, folder)
        assert judgement.false == []
        assert judgement.recall >= least
    assert judge.row(lang) in judge.PAGE.read_text(encoding="utf-8").splitlines()
    assert f"\n{judge.index_line(lang)}" in judge.INDEX.read_text(encoding="utf-8")


def test_the_index_and_the_table_of_the_documents_fit_the_words() -> None:
    """The tests beside compare the line and the file of each language. If something does not fit: `make words`."""
    index = judge.INDEX.read_text(encoding="utf-8").splitlines()
    assert judge.VERSION.read_text(encoding="utf-8") == judge.version()
    assert sorted(file.stem for file in judge.COMPILED.iterdir()) == judge.compiled_names()
    assert [line[1:3] for line in index[1:-1]] == list(languages())
    rows = [
        line.split("|")[2:-1] for line in judge.PAGE.read_text(encoding="utf-8").splitlines() if " | 0 | 0 | " in line
    ]
    *each, total = [[float(cell.replace(",", "")) for cell in cells] for cells in rows]
    assert len(each) == len(languages()) >= 39
    assert total[:3] == [sum(column) for column in zip(*each, strict=True)][:3]
    assert total[3] >= 0.97 and total[4] >= 0.96


def test_the_corpus_is_long_enough() -> None:
    for lang in LANGUAGES:
        sizes = [len(set(corpus(f"deleting/{lang}")[part])) for part in ("yes", "no", "near")]
        assert all(size >= least for size, least in zip(sizes, (40, 30, 60), strict=True)), (lang, sizes)
    seen, held = (
        sum(len({case.text for case in judge.cases(lang, folder)}) for lang in languages())
        for folder in ("", judge.HELD)
    )
    assert seen + held >= 1200
    assert held >= (seen + held) / 6


def test_the_words_of_every_language_fit_together(lang: str) -> None:
    words = judge.words_in(lang)
    assert words == words_of(lang), "make words"
    check_words(words, common())
    assert {form.verb for forms in words.forms.values() for form in forms} == VERBS
    assert words.plan.supported == (lang in WORDED)
    for intent in INTENTS:
        entries = phrases(lang, intent) if lang in LANGUAGES else drawn(lang, intent, 100)
        assert misread(lang, entries, intent) == []
        assert [text for text in entries if fold(text) != text and words.spaced] == []


@pytest.mark.parametrize("lang", [*languages(), "pt-BR", "xx"])
def test_words_to_type_are_read_and_are_no_carrier_words(lang: str) -> None:
    yes, no = safe_words(lang)
    assert read_code(f"{yes} 7KPA", lang) == CodeReply("7KPA", "confirm")
    assert read_code(f"7kpa {no.lower()}", lang) == CodeReply("7KPA", "cancel")
    assert not {yes.casefold(), no.casefold()} & {"cancel", "stop", "end", "quit", "yes", "start"}


def fullwidth(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


VARIANTS: dict[str, Callable[[str], str]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "nfd": lambda text: unicodedata.normalize("NFD", text),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
    "nfkd": lambda text: unicodedata.normalize("NFKD", text),
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "turkish upper": lambda text: text.replace("i", "İ").upper(),
    "turkish lower": lambda text: text.upper().replace("I", "ı").lower(),
    "fullwidth": fullwidth,
    "zero width": "\u200b".join,
    "byte order mark": lambda text: f"\ufeff{text}\ufeff",
    "directed": lambda text: f"\u2067{text}\u2069\u200f",
    "spaced": lambda text: f"\n\t {text.replace(' ', chr(0xA0) + ' ')} \r\n",
    "marked up": lambda text: f"*_{text}_*",
    "quoted": lambda text: f"“{text}!”",
}


LOOK_ALIKES = dict(zip("aceiopsyndh", "асеіорѕуոԁһ", strict=True))
QUESTION_MARKS = "?¿؟;՞፧⁇⁈⁉‽⸮？﹖︖❓❔꘏𑅃\U000e003f"
OTHER_WORDS = re.findall(
    r"\S+",
    "but not that all except INV-43 tomorrow only if when zebra 7 wait cancel ok 🙄 "
    "pero solo otra si y mañana mas só outra se e amanhã",
)
FALSE_FRIENDS = {
    "el": {"nai"},
    "es": {"zi", "zii"},
    "it": {"zi", "zii"},
    "ko": {"ne", "nee", "neee", "neeee", "neeeee", "neeh", "nepp"},
    "pl": {"tak", "takk"},
    "uk": {"tak", "takk"},
}
"""Words for yes in this language and for no in another."""


@pytest.mark.ledger("PEND-71")
def test_every_way_of_typing_reads_alike(lang: str) -> None:
    for intent in INTENTS:
        texts = [write(phrase) for phrase in drawn(lang, intent, 25) for write in VARIANTS.values()]
        assert misread(lang, texts, intent) == []


def test_a_changed_yes_is_unclear(lang: str) -> None:
    """A letter of another script, a question mark of any script, one other word."""
    draw, yes = random.Random(lang), drawn(lang, "confirm", 25)
    both = lang == "sr"  # it is written in Latin and in Cyrillic
    letters = [
        phrase[:position] + LOOK_ALIKES[char] + phrase[position + 1 :]
        for phrase in [*yes[:10], *drawn(lang, "cancel", 10)]
        for position, char in enumerate(phrase)
        if char in LOOK_ALIKES and not both
    ]
    assert misread(lang, letters, "unclear") == []
    asked = [
        text for phrase in yes for mark in draw.sample(QUESTION_MARKS, 4) for text in (mark + phrase, phrase + mark)
    ]
    assert misread(lang, asked, "unclear") == []
    assert [text for text in asked if read_code(f"{text} K7P3", lang) is not None] == []
    known = "\n".join([*words_of(lang).pieces, *words_of(lang).polite, *words_of("en").pieces])
    others = [other for other in OTHER_WORDS if fold(other) not in known]
    others += ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(3)]
    longer = [
        " ".join([*parts[:position], draw.choice(others), *parts[position:]])
        for parts in map(str.split, yes)
        for position in range(len(parts) + 1)
    ]
    assert misread(lang, longer, "unclear") == []


def test_word_for_no_is_never_a_yes_in_another_language(lang: str) -> None:
    noes = [text for text, meanings in heads().readings.items() if "cancel" in meanings.values() and " " not in text]
    agreed = {no for no in noes if PARSER.classify(no, lang, verb="delete") == "confirm"}
    assert agreed == FALSE_FRIENDS.get(lang, set())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_no_beside_a_yes_is_never_a_yes(lang: str) -> None:
    short = [no for no in phrases(lang, "cancel") if len(no) < 7]
    heads_of = [yes for yes in phrases(lang, "confirm") if len(yes) < 5]
    texts = [
        join.join(both)
        for yes, no, join in product(heads_of, short, (" ", ", ", "\n", ". ", "! "))
        for both in ((yes, no), (no, yes))
    ]
    texts = random.Random(7).sample(texts, min(len(texts), 1500))
    assert [text for text in texts if PARSER.classify(text, lang, verb="delete") == "confirm"] == []


# ── any text ──


@given(st.text(max_size=MAX_LENGTH + 50), st.sampled_from(("en", "es", "pt", "pl", "x-nonsense", "")))
def test_any_text_is_read_without_an_error(text: str, lang: str) -> None:
    core = fold(text).strip(" .,!*_'\"“”„«»‹›¡")
    if PARSER.classify(text, lang, verb="delete") == "confirm":
        assert any(char.isalpha() for char in core)
    read_code(text, lang)


HOSTILE = [
    "yes" + " " * 100_000,
    "yes" + "!" * 100_000,
    "a\u0300" * 50_000,
    "y\u0300" + "\u0301" * (MAX_LENGTH - 10),
    "\u200b" * 100_000 + "yes",
    "ﷺ" * MAX_LENGTH,
    "\n" * 100_000,
    "Sent from my iPhone\n" * 5_000,
    "*" * 100_000,
    "yes, " * 40,
    "k 7 " * 50,
    "@" + "b" * (MAX_LENGTH - 1),
    "\ud800" * 50,
]


def test_hostile_texts_are_unclear_at_once() -> None:
    prepare(*LANGUAGES)
    for text in HOSTILE:
        begun = time.process_time()
        for lang in LANGUAGES:
            assert PARSER.classify(text, lang, verb="delete") == "unclear"
            assert not reads_as_answer(text, lang)
        assert time.process_time() - begun < 1.0, f"{text[:6]!a} x {len(text)}"


# ── languages ──


def test_words_of_the_conversations_language_and_english_count() -> None:
    cases = corpus("languages")["read"]
    wrong = [case for case in cases if PARSER.classify(case[1], case[0], verb="delete") != case[2]]
    assert wrong == []


def test_threads_that_want_a_language_at_once_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each redelivered request needs the language again; many readers at once would be slower than one."""
    monkeypatch.setattr(words, "_words", {})
    together = threading.Barrier(8)

    def wanted(_: int) -> Words:
        together.wait()
        prepare("ca")
        return words_of("ca")

    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(wanted, range(8)))
    assert all(each is read[0] for each in read)


FRENCH = """
typed = { yes = "OUI", no = "NON" }
polite = ["merci"]
yes = ["oui"]
yes_phrases = ["d'accord, supprime", "vas-y [vite|]"]
no = ["non"]
forms = ["imp"]
yes_verb = ["{imp}-la"]
[verbs]
delete = ["supprime"]
"""


@pytest.mark.parametrize(
    ("line", "changed", "complaint"),
    [
        ('no = ["non"]', 'no = ["non", "oui"]', "'oui' is both a yes and a no"),
        ('yes = "OUI"', 'yes = "YES"', "'YES' is a carrier's word"),
        ('no = "NON" }', 'no = "BIEN" }', "'BIEN' is a carrier's word, or not read as cancel"),
        ('yes = ["oui"]', 'doubts = ["si possible"]\nyes = ["oui", "oui, si possible"]', "possible' holds a doubt"),
        ("[vite|]", "[vite|", "'vas-y [vite|' is 1 texts, or its brackets do not match"),
        ("delete =", "supprimer =", "supprimer is none of the verbs"),
    ],
)
def test_a_contradictory_language_is_refused(line: str, changed: str, complaint: str) -> None:
    assert line in FRENCH
    with pytest.raises(ValueError, match=re.escape(complaint)):
        check_words(parsed(tomllib.loads(FRENCH.replace(line, changed, 1)), "fr", common()), common())


def test_another_language_needs_no_code() -> None:
    words = parsed(tomllib.loads(FRENCH), "fr", common())
    check_words(words, common())
    assert {"oui", "yes", "d'accord, supprime", "daccord, supprime", "vas-y", "vas-y vite"} <= words.pieces.keys()
    said = {(each.intent, each.verb) for each in readings("oui, supprime-la", words)}
    assert said == {("confirm", "delete")}


# ── codes ──


def test_word_with_a_code_is_read_as_both() -> None:
    cases = corpus("codes")["read"]
    assert [case for case in cases if read_code(case[1], case[0]) != CodeReply(*case[2:])] == []
    assert [text for lang, text, *_ in cases if PARSER.classify(text, lang, verb="delete") != "unclear"] == []
    assert [text for lang, text, *_ in cases if not reads_as_answer(text, lang)] == []


def test_text_without_a_word_and_a_code_is_no_code_reply() -> None:
    assert [text for lang, text in corpus("codes")["not_read"] if read_code(text, lang) is not None] == []


def test_every_code_that_is_made_can_be_typed() -> None:
    codes = [make_code(()) for _ in range(50)] + ["3333", "AAA4", "4AAA", "YNY3", "N3KY"]
    for code, lang in product(codes, LANGUAGES):
        for typed in (code, code.lower(), f"{code[:2]}-{code[2:]}", f"{code[:2]} {code[2:]}"):
            assert read_code(f"ok {typed}", lang) == CodeReply(code, "confirm")
            assert read_code(f"{typed} no", lang) == CodeReply(code, "cancel")


# ── the decision lane ──

HERE = Address(channel="telegram", account="1", place="9")
ANA = Person(channel="telegram", account="1", user_id="5", language="pt-BR")
BOT = Person(channel="telegram", account="1", user_id="6", is_bot=True)


def message(text: str, person: Person | None = ANA, **more: Any) -> Message:
    return Message(event_ids=("1",), address=HERE, person=person, text=text, **more)


def test_answer_goes_through_the_decision_lane() -> None:
    events: list[Event] = [
        message("", command="stop"),
        message("now", command="stop"),
        message("OK K7P3"),
        message("sim k7p3"),
        message("K7P3 no"),
        message("sim", reply_to="77"),
        message("NÃO", reply_to="77"),
        message("yes", reply_to="77"),
        message("sí", reply_to="77"),
        message("OK K7P3", reply_to="77"),
        ButtonPress(event_ids=("1",), address=HERE, person=ANA, token="00x"),
        ButtonPress(event_ids=("1",), address=HERE, person=BOT, token="00x"),
        OptOut(event_ids=("1",), address=HERE, person=ANA),
        OptOut(event_ids=("1",), address=HERE, person=ANA, opted_in=True),
        DeliveryReport(event_ids=("1",), address=HERE, person=None, message_id="1", status="read"),
    ]
    assert [event for event in events if not decides(event, "en")] == []


def test_other_message_is_read_in_its_place() -> None:
    events: list[Event] = [
        message("sim"),
        message("no"),
        message("", command="help"),
        message("K7P3"),
        message("what is this?", reply_to="77"),
        message("sim, mas depois", reply_to="77"),
        message("👍", reply_to="77"),
        message("OK K7P3", forwarded=True),
        message("OK K7P3", via_bot=True),
        message("OK K7P3", transcribed=True),
        message("sim", reply_to="77", transcribed=True),
        message("OK K7P3", attachments=(Attachment(kind="image", ref="x"),)),
        message("OK K7P3", person=BOT),
        message("", person=BOT, command="stop"),
        message("OK K7P3", person=None),
        MessageEdited(event_ids=("1",), address=HERE, person=ANA, message_id="1", text="OK K7P3"),
        Reaction(event_ids=("1",), address=HERE, person=ANA, message_id="1", emoji="👍"),
    ]
    assert [event for event in events if decides(event, "pt")] == []


def test_an_answer_in_any_language_is_an_answer() -> None:
    for lang in (*LANGUAGES, "fr"):
        answers = ("yes", "sim", "no", "não", "nope", "OK K7P3", "si")
        assert [text for text in answers if not reads_as_answer(text, lang)] == []
        assert [text for text in ("", "ok", "yes?", "delete INV-42", "K7P3", "👍") if reads_as_answer(text, lang)] == []


# ── the seed library's parser ──


@pytest.mark.ledger("PEND-45", "PEND-52", "PEND-69")
def test_seeds_parser_reads_yes_and_no() -> None:
    parser: ConfirmParser = RegexConfirmParser()
    meanings = {"confirms": (True, False), "cancels": (False, True), "refuses": (False, False)}
    for key, means in meanings.items():
        texts = corpus("seed")[key]
        assert [text for text in texts if (parser.is_confirm(text), parser.is_cancel(text)) != means] == []


@pytest.mark.ledger("PEND-46")
def test_the_versions_name_the_rules_and_the_table() -> None:
    assert PARSER.version == f"6-{VERSION}"
    assert RegexConfirmParser().version == f"reply-{PARSER.version}:pt-en-es"


def test_a_no_may_have_a_reason() -> None:
    cases = [
        ("NO K7P2 wrong amount", "K7P2", "wrong amount"),
        ("no, k7p2: the amount\nis wrong", "K7P2", "the amount is wrong"),
        ("K7P2 no wrong amount", "K7P2", "wrong amount"),
        ("no thanks K7P2 it is 5, not 6", "K7P2", "it is 5, not 6"),
        ("não K7P2 valor errado", "K7P2", "valor errado"),
        ("NO K7P2 " + "x" * 5000, "K7P2", "x" * MAX_LENGTH),
    ]
    for text, code, reason in cases:
        assert read_refused_code(text, "en") == (code, "cancel"), text
        assert read_refusal(text, "en", None) == "cancel", text
        assert reason_of(text) == reason, text


def test_text_without_a_clear_no_has_no_reason() -> None:
    texts = [
        "OK K7P2 but only half",
        "yes K7P2 wrong amount",
        "NO K7P2 yes",
        "NO K7P2 OK AB12",
        "NO K7P2 ?",
        "NO K7P2",
        "no we met 2024 people",
        "we said no to K7P2 yesterday",
        "NO KPPP wrong amount",
    ]
    assert [text for text in texts if read_refused_code(text, "en") is not None] == []
