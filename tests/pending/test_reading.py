"""Reading replies: the tables of tests/pending/corpus, generated variants and chat, and texts made to be misread."""

from __future__ import annotations

import random
import re
import threading
import time
import tomllib
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
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
    looks_like_decision,
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
    made_index,
    prepare,
    safe_words,
    words_of,
)
from gateway.pending.words.parsing import check_words, parsed
from scripts import words as judge

LANGUAGES = ("en", "es", "pt")
"""Those whose every entry is tried in every variant; of the others some are drawn."""
PARSER = ReplyParser()
CORPUS = Path(__file__).parent / "corpus"
FEW = settings(derandomize=True, max_examples=100, deadline=None)


@cache
def corpus(name: str) -> dict[str, Any]:
    return tomllib.loads((CORPUS / f"{name}.toml").read_text(encoding="utf-8"))


def deleting(lang: str) -> dict[str, Any]:
    return corpus(f"deleting/{lang}")


def listed(part: str) -> list[Any]:
    return [pytest.param(lang, text, id=f"{lang}-{text!a}") for lang in LANGUAGES for text in deleting(lang)[part]]


def whole(lang: str, intent: Intent) -> list[str]:
    """The plain yes or no, and the phrases without a verb, of one language."""
    words = words_of(lang)
    return sorted(
        text
        for text, pieces in words.pieces.items()
        if not words.says_nothing(text)
        and {(piece.intent, piece.role == "after", piece.verb, piece.no_verbs) for piece in pieces}
        == {(intent, False, None, frozenset[str]())}
    )


@cache
def phrases(intent: Intent) -> list[tuple[str, str]]:
    draw = random.Random(7)
    drawn = [(lang, text) for lang in languages() for text in draw.sample(whole(lang, intent), 12)]
    return [*((lang, text) for lang in LANGUAGES for text in whole(lang, intent)), *drawn]


# ── what people write ──


@pytest.mark.ledger("PEND-47", "PEND-48", "PEND-49", "PEND-50", "PEND-71")
@pytest.mark.parametrize(("lang", "text"), listed("yes"))
def test_corpus_of_yes_is_read_as_confirm(lang: str, text: str) -> None:
    assert PARSER.classify(text, lang, verb="delete") == "confirm"


@pytest.mark.ledger("PEND-51", "PEND-70", "PEND-71")
@pytest.mark.parametrize(("lang", "text"), listed("no"))
def test_corpus_of_no_is_read_as_cancel(lang: str, text: str) -> None:
    assert PARSER.classify(text, lang, verb="delete") == "cancel"


@pytest.mark.ledger("PEND-47", "PEND-48", "PEND-52", "PEND-69", "PEND-70")
@pytest.mark.parametrize(("lang", "text"), listed("near"))
def test_corpus_of_neither_is_read_as_unclear(lang: str, text: str) -> None:
    assert PARSER.classify(text, lang, verb="delete") == "unclear"


@pytest.mark.parametrize("folder", ["", judge.HELD])
@pytest.mark.parametrize("lang", languages())
def test_every_language_is_read(lang: str, folder: str) -> None:
    """No false confirmation, no false cancellation, and nine in ten of what is plain."""
    judgement = judge.judged(lang, folder)
    assert judgement.false == []
    assert judgement.recall >= (0.88 if folder else 0.95)


def test_nearly_everything_plain_is_read_over_all() -> None:
    for folder, least in (("", 0.97), (judge.HELD, 0.96)):
        judgements = [judge.judged(lang, folder) for lang in languages()]
        assert sum(each.read for each in judgements) / sum(each.plain for each in judgements) >= least


def test_the_corpus_is_long_enough() -> None:
    for lang in LANGUAGES:
        sizes = [len(set(deleting(lang)[part])) for part in ("yes", "no", "near")]
        assert all(size >= least for size, least in zip(sizes, (40, 30, 60), strict=True)), (lang, sizes)
    assert len(languages()) >= 39
    seen, held = (
        [text for lang in languages() for text in {case.text for case in judge.cases(lang, folder)}]
        for folder in ("", judge.HELD)
    )
    assert len(seen) + len(held) >= 1200
    assert len(held) >= (len(seen) + len(held)) / 6


def test_the_index_and_the_table_of_the_documents_fit_the_words() -> None:
    """Else: `make words`."""
    assert made_index() == judge.INDEX.read_text(encoding="utf-8")
    page = judge.PAGE.read_text(encoding="utf-8")
    assert judge.written(page) == page


def test_ordinary_chat_decides_nothing() -> None:
    draw = random.Random(20)
    for lang in LANGUAGES:
        slots = deleting(lang)["slots"]
        sentences = [
            "".join((start, verb, " ", what, end))
            for start, verb, what, end in product(slots["start"], slots["verb"], slots["object"], slots["end"])
        ]
        chat = draw.sample(sentences, 4000) + [
            "".join(parts) for parts in product(("", "yes ", "no, ", "sim, ", "sí "), slots["remark"], ("", "!", " 👍"))
        ]
        heard = [
            text
            for text in chat
            if PARSER.classify(text, lang, verb="delete") != "unclear" or reads_as_answer(text, lang)
        ]
        assert heard == []


# ── generated ──

OTHER_WORDS = ["but", "not", "that", "all", "except", "INV-43", "tomorrow", "only", "if", "when", "zebra", "7", "wait"]
OTHER_WORDS += [
    "pero",
    "solo",
    "otra",
    "si",
    "y",
    "mañana",
    "mas",
    "só",
    "outra",
    "se",
    "e",
    "amanhã",
    "cancel",
    "ok",
    "🙄",
]


@FEW
@given(st.sampled_from(phrases("confirm")), st.data())
def test_one_other_word_makes_a_yes_unclear(phrase: tuple[str, str], data: st.DataObject) -> None:
    lang, yes = phrase
    others = st.sampled_from(OTHER_WORDS) | st.text("abcdefghijklmnopqrstuvwxyz", min_size=6)
    position = data.draw(st.integers(0, len(yes.split())))
    words = yes.split()
    other = data.draw(others)
    assume(
        not any(fold(other) in each for each in (words_of(lang).pieces, words_of(lang).polite, words_of("en").pieces))
    )
    words.insert(position, other)
    assert PARSER.classify(" ".join(words), lang, verb="delete") == "unclear"


def test_word_for_no_is_never_a_yes_in_another_language() -> None:
    """But for "tak", which is a no in Indonesian and a yes in Polish."""
    for (_, no), lang in product(phrases("cancel")[::20], languages()):
        assert PARSER.classify(no, lang, verb="delete") != "confirm" or no == "tak", (no, lang)


def test_a_no_beside_a_yes_is_never_a_yes() -> None:
    for lang in LANGUAGES:
        short = [no for no in whole(lang, "cancel") if len(no) < 7]
        heads_of = [yes for yes in whole(lang, "confirm") if len(yes) < 5]
        for yes, no, join in product(heads_of, short, (" ", ", ", "\n", ". ", "! ")):
            assert PARSER.classify(f"{yes}{join}{no}", lang, verb="delete") != "confirm"
            assert PARSER.classify(f"{no}{join}{yes}", lang, verb="delete") != "confirm"


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


@pytest.mark.ledger("PEND-71")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_way_of_typing_reads_alike(variant: str) -> None:
    for intent in INTENTS:
        for lang, phrase in phrases(intent):
            assert PARSER.classify(VARIANTS[variant](phrase), lang, verb="delete") == intent, (lang, phrase)


LOOK_ALIKES = str.maketrans(
    {
        "a": "а",
        "c": "с",
        "e": "е",
        "i": "і",
        "o": "о",
        "p": "р",
        "s": "ѕ",
        "y": "у",
        "n": "ո",
        "d": "ԁ",
        "m": "ⅿ",
        "h": "һ",
    }
)


def test_letters_of_another_script_are_unclear() -> None:
    for intent in INTENTS:
        for lang, phrase in phrases(intent)[::5]:
            for position, char in enumerate(phrase):
                other = char.translate(LOOK_ALIKES)
                both = lang == "sr"  # it is written in Latin and in Cyrillic
                if other != char and not both and not unicodedata.normalize("NFKC", other).isascii():
                    assert (
                        PARSER.classify(phrase[:position] + other + phrase[position + 1 :], lang, verb="delete")
                        == "unclear"
                    )


@FEW
@given(st.sampled_from(phrases("confirm")), st.sampled_from("?¿؟;՞፧⁇⁈⁉‽⸮？﹖︖❓❔꘏𑅃\U000e003f"), st.data())
def test_a_question_mark_of_any_script_makes_it_a_question(
    phrase: tuple[str, str], mark: str, data: st.DataObject
) -> None:
    lang, yes = phrase
    position = data.draw(st.sampled_from((0, len(yes))))
    text = yes[:position] + mark + yes[position:]
    assert PARSER.classify(text, lang, verb="delete") == "unclear"
    assert read_code(f"{text} K7P3", lang) is None


@FEW
@given(st.text(max_size=MAX_LENGTH + 50), st.sampled_from(("en", "es", "pt", "pl", "x-nonsense", "")))
def test_any_text_is_read_without_an_error(text: str, lang: str) -> None:
    core = fold(text).strip(" .,!*_'\"“”„«»‹›¡")
    if PARSER.classify(text, lang, verb="delete") == "confirm":
        assert any(char.isalpha() for char in core)
    read_code(text, lang)


@pytest.mark.parametrize(
    "text",
    [
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
    ],
    ids=lambda text: f"{text[:6]!a}x{len(text)}",
)
def test_hostile_texts_are_unclear_at_once(text: str) -> None:
    begun = time.process_time()
    for lang in LANGUAGES:
        assert PARSER.classify(text, lang, verb="delete") == "unclear"
        assert not reads_as_answer(text, lang)
    assert time.process_time() - begun < 1.0


# ── languages ──


@pytest.mark.parametrize(
    ("lang", "text", "means"),
    [
        ("pt-BR", "pode apagar", "confirm"),
        ("pt_PT", "Sim", "confirm"),
        ("ES-419", "sí", "confirm"),
        ("en-GB", "yep", "confirm"),
        ("fr", "yes", "confirm"),
        ("fr", "Yes, please!", "confirm"),
        ("fr", "no thanks", "cancel"),
        ("fr", "yep", "confirm"),
        ("fr", "ok", "unclear"),
        ("fr", "y", "unclear"),
        ("fr", "oui", "confirm"),
        ("no-NO", "ja", "confirm"),
        ("xx", "oui", "unclear"),
        ("xx", "go ahead", "confirm"),
        ("pl", "no", "unclear"),
        ("pl-PL", "No!", "unclear"),
        ("cs", "no", "unclear"),
        ("pl", "yes", "confirm"),
        ("pl", "no thanks", "cancel"),
        ("es", "sim", "unclear"),
        ("pt", "sí", "unclear"),
        ("en", "si", "unclear"),
        ("en", "sim", "unclear"),
        ("es", "y", "unclear"),
        ("pt", "n", "unclear"),
    ],
)
def test_words_of_the_conversations_language_and_english_count(lang: str, text: str, means: str) -> None:
    assert PARSER.classify(text, lang, verb="delete") == means


@pytest.mark.parametrize("lang", languages())
def test_no_language_contradicts_itself(lang: str) -> None:
    check_words(words_of(lang), common())


def test_threads_that_want_a_language_at_once_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request that is delivered again wants it again; many readers at once would be slower than one."""
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


def test_every_entry_can_be_reached() -> None:
    for intent in INTENTS:
        for lang, phrase in phrases(intent):
            assert PARSER.classify(phrase, lang, verb="delete") == intent, (lang, phrase)
            assert fold(phrase) == phrase or lang in ("ja", "th", "zh")


@pytest.mark.parametrize("lang", [*languages(), "pt-BR", "xx"])
def test_words_to_type_are_read_and_are_no_carrier_words(lang: str) -> None:
    yes, no = safe_words(lang)
    assert read_code(f"{yes} 7KPA", lang) == CodeReply("7KPA", "confirm")
    assert read_code(f"7kpa {no.lower()}", lang) == CodeReply("7KPA", "cancel")
    assert not {yes.casefold(), no.casefold()} & {"cancel", "stop", "end", "quit", "yes", "start"}


# ── codes ──


@pytest.mark.parametrize(("lang", "text", "code", "intent"), corpus("codes")["read"])
def test_word_with_a_code_is_read_as_both(lang: str, text: str, code: str, intent: Intent) -> None:
    assert read_code(text, lang) == CodeReply(code, intent)
    assert PARSER.classify(text, lang, verb="delete") == "unclear"
    assert reads_as_answer(text, lang)


@pytest.mark.parametrize(("lang", "text"), corpus("codes")["not_read"])
def test_text_without_a_word_and_a_code_is_no_code_reply(lang: str, text: str) -> None:
    assert read_code(text, lang) is None


def test_every_code_that_is_made_can_be_typed() -> None:
    codes = [make_code(()) for _ in range(300)] + ["3333", "AAA4", "4AAA", "YNY3", "N3KY"]
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


@pytest.mark.parametrize(
    "event",
    [
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
    ],
    ids=repr,
)
def test_answer_goes_through_the_decision_lane(event: Event) -> None:
    assert decides(event, "en")


@pytest.mark.parametrize(
    "event",
    [
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
    ],
    ids=repr,
)
def test_other_message_is_read_in_its_place(event: Event) -> None:
    assert not decides(event, "pt")


def test_nothing_edited_looks_like_a_decision() -> None:
    assert looks_like_decision("OK K7P3", "en")
    assert not looks_like_decision("OK K7P3", "en", edited=True)


@pytest.mark.parametrize("text", ["yes", "sim", "no", "não", "nope", "OK K7P3", "si"])
def test_an_answer_in_any_language_is_an_answer(text: str) -> None:
    assert all(reads_as_answer(text, lang) for lang in (*LANGUAGES, "fr"))


@pytest.mark.parametrize("text", ["", "ok", "yes?", "delete INV-42", "K7P3", "👍"])
def test_what_is_no_answer_in_any_language(text: str) -> None:
    assert not any(reads_as_answer(text, lang) for lang in (*LANGUAGES, "fr"))


# ── the seed library's parser ──


@pytest.mark.ledger("PEND-45", "PEND-47", "PEND-49", "PEND-50", "PEND-51", "PEND-52", "PEND-69", "PEND-70", "PEND-71")
@pytest.mark.parametrize(
    ("text", "read"),
    [(text, read) for read in ("confirms", "cancels", "refuses") for text in corpus("seed")[read]],
)
def test_seeds_parser_reads_yes_and_no(text: str, read: str) -> None:
    parser: ConfirmParser = RegexConfirmParser()
    assert (parser.is_confirm(text), parser.is_cancel(text)) == (read == "confirms", read == "cancels")


@pytest.mark.ledger("PEND-46")
def test_the_versions_name_the_rules_and_the_table() -> None:
    assert PARSER.version == f"4-{heads().version}"
    assert RegexConfirmParser().version == f"reply-{PARSER.version}:pt-en-es"


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("NO K7P2 wrong amount", "K7P2", "wrong amount"),
        ("no, k7p2: the amount\nis wrong", "K7P2", "the amount is wrong"),
        ("K7P2 no wrong amount", "K7P2", "wrong amount"),
        ("no thanks K7P2 it is 5, not 6", "K7P2", "it is 5, not 6"),
        ("não K7P2 valor errado", "K7P2", "valor errado"),
        ("NO K7P2 " + "x" * 5000, "K7P2", "x" * MAX_LENGTH),
    ],
)
def test_a_no_may_have_a_reason(text: str, code: str, reason: str) -> None:
    assert read_refused_code(text, "en") == (code, "cancel")
    assert read_refusal(text, "en", None) == "cancel"
    assert reason_of(text) == reason


@pytest.mark.parametrize(
    "text",
    [
        "OK K7P2 but only half",
        "yes K7P2 wrong amount",
        "NO K7P2 yes",
        "NO K7P2 OK AB12",
        "NO K7P2 ?",
        "NO K7P2",
        "no we met 2024 people",
        "we said no to K7P2 yesterday",
        "NO KPPP wrong amount",
    ],
)
def test_what_is_no_clear_no_has_no_reason(text: str) -> None:
    assert read_refused_code(text, "en") is None
