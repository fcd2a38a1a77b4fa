"""The chains of the audit: any change of the lines is detected, in any order of reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Json
from gateway.pending.audit import AuditCheck, Noted, chained
from gateway.tools.pending_action import PendingAction

NOW = datetime(2026, 11, 26, 14, 2, tzinfo=UTC)
WORDS = ("asked", "shown", "decided", "launched", "finished")
Lines = list[dict[str, Json]]


def chain(action_id: str, words: Sequence[str] = WORDS) -> tuple[Lines, str]:
    """The lines of an action, and the head in its record."""
    action = PendingAction(
        pending_action_id=action_id,
        kind="delete_invoice",
        preview="Delete?",
        requester="telegram:1:2",
        conversation="agent/telegram:1:2",
        requested_at=NOW,
        digest="d" * 64,
    )
    lines: Lines = []
    for word in words:
        noted = Noted(action_id=action_id, what=word, by="telegram:1:2", at=NOW)
        lines.append(chained(action, noted, {"telegram:1:2": f"~{'7' * 32}"}))
        action = replace(action, audit=str(lines[-1]["head"]))
    return lines, action.audit


def faults(lines: Lines, *, was_cut: bool = False, **heads: str) -> dict[str, str]:
    check = AuditCheck(heads)
    for line in lines:
        check.take(line)
    return check.faults(was_cut=was_cut)


@given(st.randoms(use_true_random=False))
def test_whole_chains_have_no_fault_in_any_order(chance: Any) -> None:
    (one, head), (two, _) = chain("one"), chain("two", WORDS[:2])
    lines = [*one, *two]
    chance.shuffle(lines)
    assert faults(lines, one=head) == {}


@given(place=st.integers(0, 4), what=st.sampled_from(["what", "person", "at", "digest", "before", "head"]))
def test_a_changed_line_is_seen(place: int, what: str) -> None:
    lines, head = chain("one")
    lines[place][what] = "another"
    assert "one" in faults(lines, one=head)


@given(gone=st.sets(st.integers(0, 4), min_size=1))
def test_removed_lines_are_seen(gone: set[int]) -> None:
    lines, head = chain("one")
    assert faults([line for place, line in enumerate(lines) if place not in gone], one=head).keys() == {"one"}


@pytest.mark.parametrize("place", range(5))
def test_an_added_line_is_seen(place: int) -> None:
    lines, head = chain("one")
    forged, _ = chain("one", ["decided"])
    twin = dict(lines[place])
    assert "one" in faults([*lines, *forged], one=head), "a second beginning"
    assert "one" in faults([*lines, twin], one=head), "the same line twice"


def test_a_chain_made_anew_without_the_key_is_seen() -> None:
    _, head = chain("one")
    forged, _ = chain("one", [*WORDS[:2], "refused"])
    assert faults(forged, one=head) == {"one": "its last lines are missing"}


def test_lines_written_after_the_record_was_read_are_no_fault() -> None:
    lines, _ = chain("one")
    assert faults(lines, one=str(lines[2]["head"])) == {}


def test_a_record_and_its_lines_belong_together() -> None:
    lines, head = chain("one")
    assert faults([], one=head) == {"one": "its last lines are missing"}
    assert faults(lines) == {}
    assert faults([], old="") == {}, "a record of a release without an audit"


@given(chance=st.randoms(use_true_random=False), expired=st.integers(1, 4))
def test_a_chain_without_its_expired_lines_is_whole(chance: Any, expired: int) -> None:
    lines, head = chain("one")
    left = lines[expired:]
    chance.shuffle(left)
    assert faults(left, was_cut=True) == {}
    assert faults(left).keys() == faults(left, was_cut=True, one=head).keys() == {"one"}, "lines of a record are kept"


@given(gone=st.integers(1, 2), expired=st.integers(0, 2))
def test_a_line_missing_behind_the_expired_ones_is_seen(gone: int, expired: int) -> None:
    lines, _ = chain("one", [*WORDS, "receipted"])
    left = [line for place, line in enumerate(lines) if place >= expired and place != expired + gone]
    assert faults(left, was_cut=True).keys() == {"one"}
