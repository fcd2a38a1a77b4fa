"""A text that is still being written shows no signs of markup that is not closed yet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.formatting import finished, read_markdown

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
def test_no_beginning_shows_raw_signs(text: str) -> None:
    known = read_markdown(text).text
    for end in range(len(text) + 1):
        shown = read_markdown(finished(text[:end])).text
        raw = [sign for sign in SIGNS if sign in shown and sign not in known]
        assert not raw, (text[:end], finished(text[:end]), shown)


@pytest.mark.parametrize("text", TEXTS)
def test_a_whole_text_is_shown_as_it_is(text: str) -> None:
    assert read_markdown(finished(text)) == read_markdown(text)


@given(st.text(alphabet="*_~`[]()|#->1. \nab\\!", max_size=60))
def test_any_text_stays_a_text(text: str) -> None:
    whole = finished(text)
    assert len(whole) <= 2 * len(text) + 6
    assert read_markdown(whole).text.count("a") <= text.count("a")


def test_a_text_without_an_end_of_its_signs_is_quick() -> None:
    for sign in ("*a ", "**a ", "`a ", "``", "[", "_a ", "~~a ", "[a](", "|"):
        finished(sign * (15_000 // len(sign)))
