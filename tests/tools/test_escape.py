"""The display of a value: legible letter by letter, and never equal to another."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.formatting import read_markdown
from gateway.tools.escape import LIKE_ASCII, has_right_to_left, legible, link, named, plain, shown, visible

INVISIBLE = [
    *("\u200b", "\u200d", "\u2060", "\ufeff", "\u202e", "\u2066", "\u2068", "\u2069", "\u00ad", "\x00", "\x1b", "\x7f"),
    *("\u3164", "\u2800", "\uffa0", "\u034f", "\ufe00", "\ufe0f", "\U000e0100", "\U000e01ef", "\u180b", "\u180f"),
    *("\u17b4", "\u17b5", "\u115f", "\u1160", "\U000e0041", "\u2028", "\u00a0", "\u3000", "\u2065"),
]
TEXTS = st.text(
    st.one_of(
        st.sampled_from([*INVISIBLE, *"\\\\\\uUxn*_~`“”\"'⏎\n \u0301\u0338-аАЖINV42５ＡᴏＢー–‑éכ שﬁ一K"]),
        st.characters(),
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("INV-42", "INV-42"),
        ("a@b.c", "a@b.c"),
        ("São Paulo", "“São Paulo”"),
        ("", "“”"),
        ("42", "“42”"),
        ("true", "“true”"),
        ("Null", "“Null”"),
        ("1e5", "“1e5”"),
        ("slack:T1:U7", "“slack:T1:U7”"),
        ("a\nb", "“a⏎b”"),
        ("a\\nb", "“a\\\\nb”"),
        ("C:\\users\\temp", "“C:\\\\users\\temp”"),
        ("\\u0041", "“\\\\u0041”"),
        ("\\*", "“\\\\*”"),
        (" a  b ", "“\\u0020a \\u0020b\\u0020”"),
        ('say "hi" “you”', "“say \\u0022hi\\u0022 \\u201cyou\\u201d”"),
        ("⏎", "“\\u23ce”"),
        ("safe\u202eevil", "“safe\\u202eevil”"),
        ("e\u0301", "“e\\u0301”"),
        ("\u0301e", "“\\u0301e”"),
        ("d\u0338one", "“d\\u0338one”"),
        ("INV-\u0410", "“INV-\\u0410”"),
        ("p\u0430y_now", "“p\\u0430y_now”"),
        ("INV-４2", "“INV-\\uff142”"),
        ("INV\u201142", "“INV\\u201142”"),
        ("INV\u201342", "“INV\\u201342”"),
        ("INV\u30fc42", "“INV\\u30fc42”"),
        ("\ufb01ne", "“\\ufb01ne”"),
        ("𝐀B", "“\\U0001d400B”"),
        ("\u212b", "“\\u212b”"),
        ("\u0421\u0410\u0412-42", "“\\u0421\\u0410\\u0412-42”"),
        ("\u0430 42", "“\\u0430 42”"),
        ("pay \u0391\u0392\u0391 now", "“pay \\u0391\\u0392\\u0391 now”"),
        ("\u13aa\u13ac", "“\\u13aa\\u13ac”"),
        ("\ua4d0\ua4f3\ua4d0", "“\\ua4d0\\ua4f3\\ua4d0”"),
        ("\u0421\u0401\u0420", "“\\u0421\\u0401\\u0420”"),
        ("\u041a\u0301", "“\\u041a\\u0301”"),
        ("ＡＢＣ ４２", "“\\uff21\\uff22\\uff23 \\uff14\\uff12”"),
        ("ʙᴏʙ", "“\\u0299\\u1d0f\\u0299”"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        ({"a": ["ü", "x\ny", 'q"']}, '{"a": ["ü", "x⏎y", "q\\u0022"]}'),
    ],
)
def test_value_is_shown_without_hidden_characters(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    "text",
    [
        "東京Towerビル",
        "コーヒー",
        "Привет-мир",
        "Москва",
        "о Вере и САВ-42 знает он",
        "ΝΑΤΟ και Ελλάδα",
        "ＡＢＣ商事 ４２",
        "Ελλάδα",
        "ครับทำ",
        "हिन्दी",
        "한국어 abc",
        "שלום",
        "مرحبا",
        "½ 3º – x",
        "naïve",
    ],
)
def test_ordinary_text_is_shown_unchanged(text: str) -> None:
    assert visible(text) == unicodedata.normalize("NFC", text) == legible(text)


@pytest.mark.parametrize("char", INVISIBLE)
def test_invisible_characters_are_written_out(char: str) -> None:
    assert (
        visible(f"INV{char}42")
        == f"INV\\{'U' if ord(char) > 0xFFFF else 'u'}{ord(char):0{8 if ord(char) > 0xFFFF else 4}x}42"
    )


@given(
    st.lists(st.text(st.sampled_from(sorted(LIKE_ASCII)), min_size=1), min_size=1),
    st.sampled_from(["", "-42", "x", " pay"]),
)
def test_no_word_of_look_alikes_goes_unsigned(words: list[str], more: str) -> None:
    read = visible(" ".join(words) + more)
    assert read.isascii()


@given(st.lists(st.text(st.sampled_from([char for char in sorted(LIKE_ASCII) if "\u0400" <= char <= "\u04ff"]))))
def test_look_alikes_among_letters_of_their_script_stay_readable(words: list[str]) -> None:
    text = " ".join(["ждёт", *filter(None, words)])
    assert visible(text) == text


@given(TEXTS)
def test_every_text_can_be_read_back_from_its_display(text: str) -> None:
    read = visible(text)
    assert all(char.isprintable() for char in read)
    assert unicodedata.is_normalized("NFC", read)
    assert not set('"“”').intersection(read)
    assert unescaped(read) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
        max_leaves=4,
    )
)
def test_every_value_can_be_read_back_from_its_display(value: Any) -> None:
    for bare in (True, False):
        assert read_value(shown(value, bare=bare)) == value
    assert isinstance(value, str) == (shown(value, bare=False)[0] == "“")


@given(TEXTS)
@example('"\u0430\u0431')  # the escape ends in letters, and is no part of the word behind it
def test_a_sentence_shows_a_value_as_it_is_shown(text: str) -> None:
    read = shown(text, bare=False)
    isolated = f"\u2068{read}\u2069" if has_right_to_left(read) else read
    assert legible(f"Delete {read}?") == f"Delete {isolated}?"
    assert read_markdown(f"x {plain(read)}").text == f"x {isolated}"


@given(TEXTS)
def test_sentence_has_no_hidden_characters(text: str) -> None:
    allowed = "\u2068\u2069\ufe0f\u200d"
    assert all(char.isprintable() or char in allowed for char in legible(text))
    assert "\n" not in legible(text)


def test_an_author_writes_emoji_and_amounts_as_ever() -> None:
    assert legible("🗑️ 1\u00a0000\u202f€ 👩‍💻?") == "🗑️ 1 000 € 👩‍💻?"
    assert legible("1\ufe0f a\u200db") == "1\\ufe0f a\\u200db"


def test_right_to_left_quote_keeps_the_order_around_it() -> None:
    assert legible("Pay “שלום” 5 to “Bob”?") == "Pay \u2068“שלום”\u2069 5 to \u2068“Bob”\u2069?"
    assert legible("Pay “x” to “Bob”?") == "Pay “x” to “Bob”?"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Ana", "Ana"),
        ("João", "João"),
        ("INV-7.pdf", "INV-7.pdf"),
        ("Ana Silva", "“Ana Silva”"),
        ("", "“”"),
        ("Bob, done 09:00 UTC.", "“Bob, done 09:00 UTC.”"),
        ("x](https://evil) **Reply yes** [y", "“x](https://evil) **Reply yes** [y”"),
        ("A\u0430", "“A\\u0430”"),
        ("n" * 90, f"“{'n' * 24}…{'n' * 15}”"),
    ],
)
def test_a_name_is_quoted_unless_it_is_one_plain_word(name: str, text: str) -> None:
    assert read_markdown(f"x {named(name)}").text == f"x {text}"
    assert read_markdown(f"x {named(name)}").spans == ()


def test_a_link_goes_where_it_says_and_its_name_is_no_markdown() -> None:
    url = "https://files.example/a(b)?x=1&copy=<2>&y=\\z w"
    styled = read_markdown(link("x](https://evil) **y", url))
    assert styled.text == "“x](https://evil) **y”"
    assert [(span.kind, span.value) for span in styled.spans] == [
        ("link", "https://files.example/a(b)?x=1&copy=%3C2%3E&y=%5Cz%20w")
    ]
    assert read_markdown(link(None, "https://files.example/a")).text == "https://files.example/a"


def test_no_escape_is_longer_than_a_question_counts_with() -> None:
    assert max(len(re.sub(r"^“|”$", "", plain(shown(char)))) for char in INVISIBLE) <= 12


def unescaped(shown: str) -> str:
    """Return the source text of a result of `visible`; by SMS the sign of a new line is an escape too."""
    pieces: list[str] = []
    at = 0
    while (found := re.compile(r"\\+|⏎").search(shown, at)) is not None:
        pieces.append(shown[at : found.start()])
        at = found.end()
        if found[0] == "⏎":
            pieces.append("\n")
            continue
        run, behind = len(found[0]), shown[at : at + 1]
        if behind not in tuple("uUxn*_~`⏎"):
            pieces.append("\\" * run)
            continue
        pieces.append("\\" * (run // 2))
        if run % 2 and behind == "n":
            pieces.append("\n")
            at += 1
        elif run % 2 and behind != "⏎":
            digits = {"u": 4, "U": 8}[behind]
            pieces.append(chr(int(shown[at + 1 : at + 1 + digits], 16)))
            at += 1 + digits
    return "".join((*pieces, shown[at:]))


def read_value(shown: str) -> Any:
    if shown.startswith("“"):
        assert shown.endswith("”") and not set("“”").intersection(shown[1:-1])
        return unescaped(shown[1:-1])
    written = re.sub(r'"([^"]*)"', lambda found: json.dumps(unescaped(found[1])), shown)
    try:
        return json.loads(written)
    except ValueError:
        return shown
