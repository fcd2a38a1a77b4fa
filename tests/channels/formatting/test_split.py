"""Splitting at a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.formatting import Span, Styled, read_markdown, split


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
