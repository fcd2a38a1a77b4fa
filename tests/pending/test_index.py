"""The index only finds actions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gateway.pending.index import Index, Showing
from gateway.pending.transitions import close, show
from tests.pending.records import ANA, NOW, record


def numbered(number: int, **changes: Any) -> Any:
    return record(pending_action_id=f"{number:032x}", code=f"A{number:03}", prompts=(f"m{number}",), **changes)


def ids(entries: Any) -> list[int]:
    return [int(entry.action_id, 16) for entry in entries]


def test_an_open_action_is_found_by_code_and_by_prompt() -> None:
    index = Index().changed(numbered(1), NOW).changed(numbered(2), NOW)
    found = index.by_code("A002")
    assert found is not None and ids([found]) == [2]
    assert ids(index.by_prompt("m1")) == [1]
    assert index.by_code("A003") is None
    assert index.by_prompt("m3") == ()


def test_one_prompt_may_have_asked_for_several() -> None:
    one, two = (replace(numbered(n), prompts=("m",)) for n in (1, 2))
    assert ids(Index().changed(one, NOW).changed(two, NOW).by_prompt("m")) == [1, 2]


def test_decided_action_moves_to_lately_and_is_still_found() -> None:
    index = Index().changed(numbered(1), NOW).changed(numbered(2), NOW)
    index = index.changed(close(numbered(1), "refused", NOW), NOW)
    assert (ids(index.open), ids(index.lately)) == ([2], [1])
    assert index.by_code("A001") is not None
    assert ids(index.by_prompt("m1")) == [1]


def test_a_code_used_again_is_that_of_the_open_one() -> None:
    old = close(numbered(1), "refused", NOW)
    index = Index().changed(numbered(1), NOW).changed(old, NOW).changed(replace(numbered(2), code="A001"), NOW)
    found = index.by_code("A001")
    assert found is not None and ids([found]) == [2]


def test_a_new_showing_is_found_too() -> None:
    index = Index().changed(numbered(1), NOW)
    shown = show(numbered(1), NOW, "again")
    assert ids(index.changed(shown, NOW).by_prompt("again")) == [1]


def test_twenty_settled_actions_and_all_open_ones_are_kept() -> None:
    index = Index()
    for number in range(1, 26):
        index = index.changed(numbered(number), NOW).changed(close(numbered(number), "refused", NOW), NOW)
    for number in range(30, 60):
        index = index.changed(numbered(number), NOW)
    assert ids(index.lately) == list(range(6, 26))
    assert len(index.open) == 30


def test_last_acts_of_the_latest_people_are_kept() -> None:
    index = Index()
    for number in range(50):
        index = index.acted_by(f"test:bot:{number}", NOW + timedelta(seconds=number))
    index = index.acted_by(str(ANA), NOW + timedelta(seconds=60)).acted_by(str(ANA), NOW + timedelta(seconds=70))
    assert index.acted[str(ANA)] == NOW + timedelta(seconds=70)
    assert len(index.acted) <= 21
    assert "test:bot:49" in index.acted


def test_no_stop_is_forgotten_however_many_people_say_it() -> None:
    index = Index()
    for number in range(250):
        index = index.stopped_by(f"test:bot:{number}", NOW + timedelta(seconds=number))
        index = Index.from_text(index.to_text())
    assert len(index.stopped) == 100
    for number in range(250):
        assert index.has_stopped(f"test:bot:{number}", NOW + timedelta(seconds=number - 1))
    assert not index.has_stopped("test:bot:200", NOW + timedelta(seconds=200))
    assert index.has_stopped("test:bot:never", NOW + timedelta(seconds=148))
    assert not index.has_stopped("test:bot:never", NOW + timedelta(seconds=149))


def test_late_older_stop_does_not_replace_a_newer_one() -> None:
    index = Index().stopped_by(str(ANA), NOW).stopped_by(str(ANA), NOW - timedelta(seconds=5))
    assert index.has_stopped(str(ANA), NOW - timedelta(seconds=1))


def test_an_index_without_a_stop_for_everybody_is_read() -> None:
    index = Index().stopped_by(str(ANA), NOW)
    assert "all_stopped" not in index.to_text()
    assert not Index.from_text(index.to_text()).has_stopped("test:bot:other", NOW - timedelta(days=1))


def test_index_reads_back_as_it_was_stored() -> None:
    index = Index().changed(numbered(1), NOW).changed(numbered(2), NOW).acted_by(str(ANA), NOW)
    index = index.changed(close(numbered(1), "refused", NOW), NOW).stopped_by(str(ANA), NOW)
    index = index.showed(Showing(at=NOW, queued=NOW, shows=frozenset({"a"}), alone=True, message_id="7", sent_at=NOW))
    assert Index.from_text(index.to_text()) == index


def test_counter_grows_with_every_write_and_with_a_new_index() -> None:
    first = Index().written({}, NOW)
    assert first.written({}, NOW - timedelta(days=1)).counter > first.counter
    assert Index().written({}, NOW + timedelta(seconds=1)).counter > first.counter


def test_index_names_the_seal_of_each_records_last_write() -> None:
    index = Index().changed(numbered(1), NOW).changed(numbered(2), NOW)
    index = index.written({f"{1:032x}": "one", f"{2:032x}": "two"}, NOW).written({f"{2:032x}": "new"}, NOW)
    assert [entry.seal for entry in index.open] == ["one", "new"]


def test_no_showing_is_last_while_another_message_is_in_flight() -> None:
    def at(second: int) -> datetime:
        return NOW + timedelta(seconds=second)

    index = Index().showed(Showing(at=at(1), queued=at(0), message_id="1"))
    index = index.showed(Showing(at=at(9), queued=at(5), message_id="2"))
    found = [index.last_said(at(second)) for second in (0, 1, 4, 5, 8, 9)]
    assert [[showing.message_id for showing in said] for said in found] == [[], ["1"], ["1"], [], [], ["2"]]
    assert [showing.message_id for showing in index.last_said(at(5), lambda showing: True)] == ["2"]
