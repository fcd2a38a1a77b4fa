"""Markdown: read into text and spans, split at a limit, and completed during streaming."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.formatting import MAX_MARKDOWN, Span, Styled, finished, read_markdown, split, to_plain


def marks(markdown: str) -> list[tuple[str, str, str]]:
    styled = read_markdown(markdown)
    return [(span.kind, styled.text[span.start : span.end], span.value) for span in styled.spans]


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("plain", "plain"),
        ("one\ntwo\n\nthree", "one\ntwo\n\nthree"),
        ("# Title\ntext", "Title\n\ntext"),
        ("- a\n- b\n  - c\n\n    more of c\n- d", "• a\n• b\n  • c\n    more of c\n• d"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("- - a", "• • a"),
        ("> a\n> b\n\nc", "a\nb\n\nc"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("use <b>bold</b> and <!channel>", "use <b>bold</b> and <!channel>"),
        ("<div>\nkept\n</div>", "<div>\nkept\n</div>"),
        ("costs 5$ or 10$, ~3 of them", "costs 5$ or 10$, ~3 of them"),
        ("&amp; &lt;", "& <"),
        ("a\\*b", "a*b"),
        ("a  \nb", "a\nb"),
        ("```\n```", ""),
        ("unclosed **bold and `code", "unclosed **bold and `code"),
        ("a\ud800b", "a?b"),
        ("", ""),
    ],
)
def test_markdown_is_read_as_its_visible_text(markdown: str, text: str) -> None:
    assert read_markdown(markdown).text == text


def test_spans_cover_the_marked_text() -> None:
    assert marks("**b** *i* ~~s~~ `c` [l](https://a.example) ![p](https://b.example)") == [
        ("bold", "b", ""),
        ("italic", "i", ""),
        ("strike", "s", ""),
        ("code", "c", ""),
        ("link", "l", "https://a.example"),
        ("link", "p", "https://b.example"),
    ]
    assert marks("```py title\nx = 1\n```") == [("pre", "x = 1", "py")]
    assert marks("> a\n>> b\n\nc") == [("quote", "a\n\nb", "")]
    assert marks("# **a** b") == [("bold", "a b", "")]
    assert marks("[x](javascript:alert(1))") == []


def test_a_table_is_aligned_by_visible_width() -> None:
    text = read_markdown("| id | who |\n|---|---|\n| 1 | 日本 |\n| [22](https://a.example) | é |").text
    assert text.splitlines() == [
        "id                     | who",
        "-----------------------+-----",
        "1                      | 日本",
        "22 (https://a.example) | é",
    ]


WIDE = """\
| Invoice | Customer | Amount | Due |
|---|---|---:|---|
| INV-7 | Blue Bakery in Old Street | 1,280.00 EUR | |
| INV-42 | Café Aurora | 410.20 EUR | tomorrow |
"""


def test_rows_of_a_wide_table_stand_one_under_another() -> None:
    styled = read_markdown(f"Here:\n\n{WIDE}\nThat is all.")
    assert styled.text == (
        "Here:\n\n"
        "INV-7\nCustomer: Blue Bakery in Old Street\nAmount: 1,280.00 EUR\n\n"
        "INV-42\nCustomer: Café Aurora\nAmount: 410.20 EUR\nDue: tomorrow\n\n"
        "That is all."
    )
    assert [styled.text[span.start : span.end] for span in styled.spans] == ["INV-7", "INV-42"]
    assert {span.kind for span in styled.spans} == {"bold"}


@pytest.mark.parametrize(("cells", "stands"), [(16, "pre"), (17, "bold")])
def test_a_table_of_36_columns_is_no_wider(cells: int, stands: str) -> None:
    (span, *_) = read_markdown(f"|{'a' * cells}|{'b' * 17}|\n|-|-|\n|1|2|").spans
    assert span.kind == stands


def test_a_wide_table_without_rows_or_headings_keeps_its_text() -> None:
    long = "x" * 40
    assert read_markdown(f"|{long}|b|\n|-|-|").text == f"{long}\nb"
    assert read_markdown(f"| | |\n|-|-|\n|{long}|2|").text == f"{long}\n2"


def test_plain_text_writes_links_out_and_marks_quotes() -> None:
    markdown = "see [here](https://a.example), <https://b.example>, [me](mailto:a@b.example)\n\n> q1\n> q2"
    expected = "see here (https://a.example), https://b.example, me (mailto:a@b.example)\n\n> q1\n> q2"
    assert to_plain(read_markdown(markdown)) == expected


HOSTILE = {
    "brackets": "[" * MAX_MARKDOWN,
    "images": "![" * MAX_MARKDOWN,
    "links": "[a](" * MAX_MARKDOWN,
    "stars": "*a " * MAX_MARKDOWN,
    "strong": "**" * 4000 + "a" + "**" * 4000,
    "ticks": "".join("`" * n + " " for n in range(170)),
    "quotes": ">" * 15_000 + " a",
    "lists": "- " * 7_000 + "a",
    "columns": "|a" * 2000 + "|\n" + "|-" * 2000 + "|\n" + "|b" * 2000 + "|\n",
    "wide table": "|a|b|\n|-|-|\n|" + "x" * 7000 + "|y|\n" + "|a|b\n" * 1500,
    "short rows": "a|b|c\n-|-|-\n" + "x\n" * MAX_MARKDOWN,
    "short rows of a wide table": "a|" * 50 + "\n" + "-|" * 50 + "\n" + "x\n" * MAX_MARKDOWN,
    "newlines": "\n" * MAX_MARKDOWN,
    "long": "a **b** " * MAX_MARKDOWN,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_text_built_to_be_slow_or_to_grow_is_read_at_once(name: str) -> None:
    markdown = HOSTILE[name][:MAX_MARKDOWN] if name != "long" else HOSTILE[name]
    began = time.process_time()
    styled = read_markdown(markdown)
    to_plain(styled)
    assert time.process_time() - began < 1.0
    assert len(styled.text) <= 3 * len(markdown)


@pytest.mark.parametrize("name", ["quotes", "lists", "long"])
def test_markdown_too_deep_or_too_long_is_shown_unformatted(name: str) -> None:
    assert read_markdown(HOSTILE[name]) == Styled(HOSTILE[name])


WORDS = ("a", "b c", "INV-7:", "1", "2.", "3)", "x.", "é", "-", "+", "=", "==", "#", ">", "(y)", "!", "|", "*", "<b>")
GAPS = (" ", "  ", "    ", "\t", "\n", "\n\n", "\n\n\n", "\r", "\0", "\xa0", "&amp;", "\\")


@example("a\n=")
@example("+ a")
@example("a \\- b")
@example("a|b\n:-|-")
@example("a\n\n\nb")
@given(st.lists(st.sampled_from(WORDS + GAPS), max_size=15).map("".join))
def test_text_with_little_markup_reads_alike_alone_and_after(markdown: str) -> None:
    """After marked text, the parser reads the Markdown."""
    before = "some\n\n"
    alone, after = read_markdown(markdown), read_markdown(f"*some*\n\n{markdown}")
    assert after.text == (before + alone.text).rstrip("\n")
    moved = [replace(s, start=s.start + len(before), end=s.end + len(before)) for s in alone.spans]
    assert after.spans == (Span("italic", 0, 4), *moved)


@given(st.text(alphabet="*_`~[]()!<>#|-+.:\\ \n\tab1é🧾\u200d\0", max_size=200))
def test_spans_lie_in_the_text_and_nest(markdown: str) -> None:
    styled = read_markdown(markdown)
    open_spans: list[Span] = []
    for span in styled.spans:
        assert 0 <= span.start < span.end <= len(styled.text)
        while open_spans and open_spans[-1].end <= span.start:
            open_spans.pop()
        assert not open_spans or span.end <= open_spans[-1].end
        open_spans.append(span)


# ── Splitting at a limit ──


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def texts(text: str, limit: int) -> list[str]:
    return [piece.text for piece in split(Styled(text), limit)]


TEXT = st.text(alphabet="ab \n🧾é\u0301\u200d👩", max_size=200)


@given(TEXT, st.integers(2, 50), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)), max_size=5))
def test_pieces_keep_to_the_limit_and_joined_are_the_text(text: str, limit: int, places: list[tuple[int, int]]) -> None:
    spans = tuple(Span("bold", start, min(start + length, len(text))) for start, length in places if start < len(text))
    pieces = split(Styled(text, spans), limit, utf16)
    assert "".join(piece.text for piece in pieces) == text
    assert all(0 < utf16(piece.text) <= limit for piece in pieces)
    at = 0
    marked: set[int] = set()
    for piece in pieces:
        for span in piece.spans:
            assert 0 <= span.start < span.end <= len(piece.text)
            marked |= set(range(at + span.start, at + span.end))
        at += len(piece.text)
    assert marked == {i for span in spans for i in range(span.start, span.end)}


def test_it_cuts_between_paragraphs_else_lines_else_words() -> None:
    assert texts("aaaa bb\ncc\n\ndddd", 14) == ["aaaa bb\ncc\n\n", "dddd"]
    assert texts("aaaaa bb\ncccc dddd", 14) == ["aaaaa bb\n", "cccc dddd"]
    assert texts("aaaa bbbb cccc", 12) == ["aaaa bbbb ", "cccc"]
    assert texts("a" * 10, 4) == ["aaaa", "aaaa", "aa"]


def test_a_link_that_fits_is_not_torn() -> None:
    styled = read_markdown("words words words [the terms of it](https://a.example) words")
    pieces = split(styled, 26)
    assert [piece.text for piece in pieces] == ["words words words ", "the terms of it words"]
    assert [len(piece.spans) for piece in pieces] == [0, 1]


def test_a_code_block_over_the_cut_stays_one_in_both_pieces() -> None:
    pieces = split(read_markdown("```py\n" + "x = 1\n" * 10 + "```"), 30)
    assert all([span.kind for span in piece.spans] == ["pre"] for piece in pieces)
    assert {piece.spans[0].value for piece in pieces} == {"py"}


@pytest.mark.parametrize("joined", ["e\u0301" * 20, "👩‍👧" * 10, "👍🏽" * 10])
def test_no_accent_or_joined_emoji_is_torn_off(joined: str) -> None:
    for piece in texts(joined, 11):
        assert piece[0] not in "\u0301\u200d🏽"
        assert piece[-1] != "\u200d"


def test_a_limit_below_one_character_is_refused() -> None:
    with pytest.raises(ValueError, match="split at 1"):
        split(Styled("🧾"), 1)


# ── A text that is still being written shows no signs of markup that is not closed yet ──


EXAMPLES = {
    "": "",
    "plain": "plain",
    "a **bo": "a **bo**",
    "a **": "a",
    "a **bold*": "a **bold**",
    "a **bold ": "a **bold**",
    "a *b **c": "a *b **c***",
    "***both": "***both***",
    "~~gone": "~~gone~~",
    "2 * 3 ": "2 * 3",
    "snake_case_name": "snake_case_name",
    "_it": "_it_",
    "see `co": "see `co`",
    "see `": "see",
    "see `a` and ``b": "see `a` and ``b``",
    "see `**a`": "see `**a`",
    "[Ask": "Ask",
    "see [Ask](https://exam": "see Ask",
    "![a](http": "a",
    "[a](https://b.example)": "[a](https://b.example)",
    "```": "",
    "x\n\n```py": "x",
    "```py\nprint(": "```py\nprint(\n```",
    "```py\nx = 1\n``": "```py\nx = 1\n```",
    "```py\nx = 1\n```": "```py\nx = 1\n```",
    "```\n**a": "```\n**a\n```",
    "one\n-": "one",
    "one\n\n- two\n- ": "one\n\n- two",
    "one\n\n1.": "one",
    "# ": "",
    "> ": "",
    "| a | b": "",
    "| a | b |\n|---": "",
    "| a | b |\n|---|---|": "| a | b |\n|---|---|",
    "| a | b |\n|---|---|\n| 1 |": "| a | b |\n|---|---|\n| 1 |",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3": "| a | b |\n|---|---|\n| 1 | 2 |",
}

TEXTS = [
    "Here is **the *whole* story** of `x = **1**` and ~~old~~ new, with snake_case and 2 * 3 * 4.",
    "# Title\n\nSome text with a [link **in** bold](https://b.example/a_b) and more.\n\n- one\n- **two**\n  - three\n",
    "Code:\n\n```python\ndef f(a, **b):\n    return a[0](b)  # `x`\n```\n\nThen *on* it goes.",
    "| Name | Sum |\n|------|----:|\n| **Ana** | 1 |\n| Bo | 2 |\n\nThat is all.",
    "שלום **עולם** מה שלומך? 👩‍👩‍👧 _כן_",
    "1. First **thing**\n2. Second `thing`\n\n> A *quote* that\n> goes on\n\n---\n\nEnd.",
    "Nested: ***bold and italic* only bold** then `` a`b `` end",
]
SIGNS = ("**", "```", "~~", "](", "|--")


@pytest.mark.parametrize(("text", "whole"), EXAMPLES.items())
def test_open_markup_is_closed(text: str, whole: str) -> None:
    assert finished(text) == whole


@pytest.mark.parametrize("text", TEXTS)
def test_no_prefix_of_a_text_shows_raw_markup(text: str) -> None:
    known = read_markdown(text).text
    for end in range(len(text) + 1):
        shown = read_markdown(finished(text[:end])).text
        raw = [sign for sign in SIGNS if sign in shown and sign not in known]
        assert not raw, (text[:end], finished(text[:end]), shown)


@pytest.mark.parametrize("text", TEXTS)
def test_a_whole_text_is_shown_as_it_is(text: str) -> None:
    assert read_markdown(finished(text)) == read_markdown(text)


@given(st.text(alphabet="*_~`[]()|#->1. \nab\\!", max_size=60))
def test_completing_a_text_adds_few_marks_and_no_letters(text: str) -> None:
    whole = finished(text)
    assert len(whole) <= 2 * len(text) + 6
    assert read_markdown(whole).text.count("a") <= text.count("a")


def test_a_text_without_an_end_of_its_signs_is_quick() -> None:
    for sign in ("*a ", "**a ", "`a ", "``", "[", "_a ", "~~a ", "[a](", "|"):
        finished(sign * (15_000 // len(sign)))
