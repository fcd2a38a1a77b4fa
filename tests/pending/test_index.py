"""The index only finds actions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gateway.pending.index import Index
from gateway.pending.transitions import close, show
from tests.pending.records import ANA, NOW, record


def numbered(number: int, **changes: Any) -> Any:
    return record(pending_action_id=f"{number:032x}", code=f"A{number:03}", prompts=(f"m{number}",), **changes)


def ids(entries: Any) -> list[int]:
    return [int(entry.action_id, 16) for entry in entries]


def test_an_open_action_is_found_by_code_and_by_prompt() -> None:
    index = Index().asked(numbered(1)).asked(numbered(2))
    found = index.by_code("A002")
    assert found is not None and ids([found]) == [2]
    assert ids(index.by_prompt("m1")) == [1]
    assert index.by_code("A003") is None
    assert index.by_prompt("m3") == ()


def test_one_prompt_may_have_asked_for_several() -> None:
    one, two = (replace(numbered(n), prompts=("m",)) for n in (1, 2))
    assert ids(Index().asked(one).asked(two).by_prompt("m")) == [1, 2]


def test_what_is_decided_moves_to_lately_and_is_still_found() -> None:
    index = Index().asked(numbered(1)).asked(numbered(2))
    index = index.changed(close(numbered(1), "refused", NOW), NOW)
    assert (ids(index.open), ids(index.lately)) == ([2], [1])
    assert index.by_code("A001") is not None
    assert ids(index.by_prompt("m1")) == [1]


def test_a_code_used_again_is_that_of_the_open_one() -> None:
    old = close(numbered(1), "refused", NOW)
    index = Index().asked(numbered(1)).changed(old, NOW).asked(replace(numbered(2), code="A001"))
    found = index.by_code("A001")
    assert found is not None and ids([found]) == [2]


def test_a_new_showing_is_found_too() -> None:
    index = Index().asked(numbered(1))
    shown = show(numbered(1), NOW, "again")
    assert ids(index.changed(shown, NOW).by_prompt("again")) == [1]


def test_twenty_of_those_settled_are_kept_and_every_open_one() -> None:
    index = Index()
    for number in range(1, 26):
        index = index.asked(numbered(number)).changed(close(numbered(number), "refused", NOW), NOW)
    for number in range(30, 60):
        index = index.asked(numbered(number))
    assert ids(index.lately) == list(range(6, 26))
    assert len(index.open) == 30


def test_presses_of_the_last_people_are_kept() -> None:
    index = Index()
    for number in range(50):
        index = index.press(f"test:bot:{number}", NOW + timedelta(seconds=number))
    index = index.press(str(ANA), NOW + timedelta(seconds=60)).press(str(ANA), NOW + timedelta(seconds=70))
    assert index.pressed[str(ANA)] == NOW + timedelta(seconds=70)
    assert len(index.pressed) <= 21
    assert "test:bot:49" in index.pressed


def test_it_is_the_same_after_it_was_stored() -> None:
    index = Index().asked(numbered(1)).asked(numbered(2)).press(str(ANA), NOW)
    index = index.changed(close(numbered(1), "refused", NOW), NOW)
    assert Index.from_json(index.to_json()) == index
    assert Index.from_json(None) == Index()
