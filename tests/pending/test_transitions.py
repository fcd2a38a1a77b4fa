"""The states of an action: the allowed transitions, and the refusal of all others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.pending.transitions import (
    PROBED_NOT_DONE,
    SETTLED_BY,
    WrongState,
    approve,
    close,
    expired,
    finish,
    launch,
    may_approve,
    may_refuse,
    may_relaunch,
    settle,
    show,
    tighten,
)
from gateway.tools.pending_action import PendingAction
from tests.pending.records import ANA, BOB, EVA, NOW, record

STATES = ["pending", "approved", "running", "done", "failed", "unknown", "closed"]


def after(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


def shown(**changes: Any) -> PendingAction:
    return show(record(**changes), NOW, "m1")


def running(**changes: Any) -> PendingAction:
    return replace(launch(approve(shown(), str(ANA), "Ana", NOW), 5, after(1)), **changes)


@pytest.mark.ledger("PEND-13")
def test_answer_window_begins_when_the_prompt_is_delivered() -> None:
    asked = record()
    assert (asked.shown_at, asked.expires_at) == (None, None)
    assert not expired(asked, after(10**6))
    arrived = show(asked, after(300), "m1")
    assert arrived.shown_at == after(300)
    assert arrived.expires_at == after(300 + 900)


def test_another_showing_does_not_move_the_deadline() -> None:
    again = show(shown(), after(500), "m2")
    assert (again.prompts, again.shown_at) == (("m1", "m2"), NOW)
    assert again.expires_at == after(900)
    assert show(again, after(501), "m2").prompts == ("m1", "m2")


def test_a_showing_after_the_end_is_only_remembered() -> None:
    late = show(close(record(), "withdrawn", NOW), after(5), "m9")
    assert (late.prompts, late.shown_at, late.expires_at) == (("m9",), None, None)


@pytest.mark.ledger("PEND-10")
def test_the_deadline_itself_is_still_in_time() -> None:
    action = shown()
    assert not expired(action, after(900))
    assert expired(action, after(900) + timedelta(microseconds=1))
    assert approve(action, str(ANA), None, after(900)).state == "approved"
    with pytest.raises(WrongState):
        approve(action, str(ANA), None, after(900) + timedelta(microseconds=1))


@pytest.mark.ledger("PEND-60", "PEND-62")
def test_a_window_only_ever_shortens() -> None:
    action = tighten(shown(), after(100), 10)
    assert action.expires_at == after(110)
    assert tighten(action, after(101), 500) == action
    before_it_arrived = tighten(record(), NOW, 10)
    assert show(before_it_arrived, after(5), "m1").expires_at == after(10)


@pytest.mark.ledger("PEND-61")
@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan"), float("inf"), float("-inf")])
def test_a_window_of_no_length_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="zero or more"):
        tighten(shown(), NOW, seconds)


def test_without_approvers_the_requester_alone_decides() -> None:
    action = record()
    assert may_approve(action, str(ANA)) and may_refuse(action, str(ANA))
    assert not may_approve(action, str(BOB)) and not may_refuse(action, str(BOB))
    with pytest.raises(PermissionError):
        approve(shown(), str(BOB), "Bob", NOW)


def test_with_approvers_the_requester_may_only_say_no() -> None:
    action = record(approvers=(str(BOB),))
    assert not may_approve(action, str(ANA)) and may_refuse(action, str(ANA))
    assert may_approve(action, str(BOB)) and may_refuse(action, str(BOB))
    assert not may_refuse(action, str(EVA))


def test_as_many_people_as_needed_each_counted_once() -> None:
    action = show(record(approvers=(str(BOB), str(EVA)), need=2), NOW, "m1")
    one = approve(action, str(BOB), "Bob", after(1))
    assert (one.state, len(one.votes)) == ("pending", 1)
    same = approve(one, str(BOB), "Bob", after(2))
    assert (same.state, len(same.votes)) == ("pending", 1)
    both = approve(same, str(EVA), "Eva", after(3))
    assert (both.state, both.decided_by, both.decided_at) == ("approved", str(EVA), after(3))


@pytest.mark.ledger("PEND-14")
def test_the_words_of_the_seed_for_each_state() -> None:
    approved = approve(shown(), str(ANA), None, NOW)
    assert [shown().status, approved.status, running().status] == ["pending", "confirmed", "confirmed"]
    assert [close(shown(), "refused", NOW).status, close(shown(), "expired", NOW).status] == ["cancelled", "expired"]
    assert {finish(running(), 5, "done", "ok", NOW).status, running(state="unknown").status} == {"consumed"}


@pytest.mark.parametrize("state", STATES)
def test_only_a_pending_action_is_approved(state: Any) -> None:
    action = shown(state=state)
    if state == "pending":
        assert approve(action, str(ANA), "Ana", NOW).decided_name == "Ana"
    else:
        with pytest.raises(WrongState, match=state):
            approve(action, str(ANA), "Ana", NOW)


@pytest.mark.parametrize("state", STATES)
def test_only_before_launch_can_it_be_closed(state: Any) -> None:
    action = shown(state=state)
    if state in ("pending", "approved"):
        closed = close(action, "refused", after(7), by=str(BOB), name="Bob")
        assert (closed.state, closed.reason, closed.finished_at) == ("closed", "refused", after(7))
        assert (closed.decided_by, closed.decided_name) == (str(BOB), "Bob")
    else:
        with pytest.raises(WrongState):
            close(action, "refused", NOW)


def test_end_without_a_decision_names_no_person() -> None:
    closed = close(shown(), "expired", after(901))
    assert (closed.decided_by, closed.decided_at) == (None, None)


@pytest.mark.parametrize("state", STATES)
def test_only_an_approved_or_running_action_is_launched(state: Any) -> None:
    action = shown(state=state, fence=4)
    if state in ("approved", "running"):
        started = launch(action, 5, after(9))
        assert (started.state, started.fence, started.attempts, started.launched_at) == ("running", 5, 1, after(9))
    else:
        with pytest.raises(WrongState):
            launch(action, 5, NOW)


@pytest.mark.parametrize("fence", [0, 4, 5])
def test_old_fence_launches_no_action(fence: int) -> None:
    with pytest.raises(WrongState):
        launch(running(), fence, NOW)


def test_effect_is_tried_three_times_within_a_day() -> None:
    action = running()
    assert may_relaunch(action, after(3600))
    assert not may_relaunch(action, after(1 + 86400))
    again = launch(launch(action, 6, after(2)), 7, after(3))
    assert (again.attempts, again.launched_at) == (3, after(1))
    assert not may_relaunch(again, after(4))
    assert not may_relaunch(replace(action, state="unknown"), after(4))


@pytest.mark.parametrize("state", STATES)
def test_only_the_fence_that_launched_ends_it(state: Any) -> None:
    action = running(state=state)
    with pytest.raises(WrongState):
        finish(action, 4, "failed", None, NOW)
    if state == "unknown":
        assert finish(action, 4, "done", None, NOW).state == "done", "an earlier attempt has done it after all"
    else:
        with pytest.raises(WrongState):
            finish(action, 4, "done", None, NOW)
    if state in ("running", "unknown"):
        ended = finish(action, 5, "done", "deleted", after(3))
        assert (ended.state, ended.outcome, ended.finished_at) == ("done", "deleted", after(3))
    else:
        with pytest.raises(WrongState):
            finish(action, 5, "done", None, NOW)


def test_late_done_replaces_an_assumed_failure() -> None:
    unknown = finish(running(), 5, "unknown", "the worker died", NOW)
    by_hand = settle(unknown, "failed", f"{SETTLED_BY}operator", NOW)
    assert finish(by_hand, 5, "done", "deleted", after(3)).state == "done"
    with pytest.raises(WrongState):
        finish(by_hand, 5, "unknown", None, after(3))
    probed = finish(running(), 5, "failed", PROBED_NOT_DONE, NOW)
    assert [finish(probed, 5, end, None, after(3)).state for end in ("done", "unknown")] == ["done", "unknown"]
    raised = finish(running(), 5, "failed", "error: OSError", NOW)
    with pytest.raises(WrongState):
        finish(raised, 5, "done", None, after(3))


def test_unknown_action_stays_unknown_until_an_outcome_is_known() -> None:
    unknown = finish(running(), 5, "unknown", "the worker died", NOW)
    with pytest.raises(WrongState):
        finish(unknown, 5, "unknown", None, NOW)
    assert finish(unknown, 5, "failed", "error: OSError", NOW).state == "failed"
    assert settle(unknown, "done", "settled by an operator", NOW).outcome == "settled by an operator"


@pytest.mark.parametrize("state", [state for state in STATES if state != "unknown"])
def test_only_an_unknown_action_is_settled_by_hand(state: Any) -> None:
    with pytest.raises(WrongState):
        settle(running(state=state), "done", "by hand", NOW)
