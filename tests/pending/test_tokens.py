"""Random names."""

from __future__ import annotations

import re

import pytest

from gateway.pending.tokens import (
    CODE_LETTERS,
    make_action_id,
    make_code,
    make_token,
    token_partition,
    token_sha256,
)


def test_a_token_names_its_partition_and_fits_telegrams_button() -> None:
    """64 bytes: https://core.telegram.org/bots/api#inlinekeyboardbutton."""
    token = make_token("07")
    assert token_partition(token) == "07"
    assert len(token.encode()) == 24 <= 64
    assert re.fullmatch(r"07[A-Za-z0-9_-]{22}", token)


def test_tokens_and_ids_never_repeat() -> None:
    assert len({make_token("00") for _ in range(1000)}) == 1000
    assert len({make_action_id() for _ in range(1000)}) == 1000


@pytest.mark.parametrize("token", ["", "07", "0" * 23, "0" * 25, "x7" + "A" * 22, "٠٧" + "A" * 22, "é" * 24])
def test_foreign_token_names_no_partition(token: str) -> None:
    assert token_partition(token) is None


def test_token_is_kept_as_its_hash() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", token_sha256(make_token("00")))
    assert token_sha256("\ud800") != token_sha256("?")


def test_a_code_is_four_clear_characters_with_a_digit() -> None:
    for _ in range(500):
        code = make_code(())
        assert re.fullmatch(f"[{CODE_LETTERS}]{{4}}", code)
        assert re.search(r"\d", code)
    assert not set("0O1IL2Z5S8B") & set(CODE_LETTERS)


def test_new_code_is_none_of_the_taken_ones() -> None:
    class AllButOne(set[str]):
        """Holds every code but the fiftieth asked for."""

        asked = 0

        def __contains__(self, code: object) -> bool:
            self.asked += 1
            return self.asked < 50

    taken = AllButOne()
    assert make_code(taken)
    assert taken.asked == 50
