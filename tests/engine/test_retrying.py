"""The retry loop of every change: conflicts, an absent store, and how both end."""

from __future__ import annotations

import pytest

from gateway.engine import retrying
from gateway.engine.retrying import attempts
from gateway.store.errors import Conflict, StoreUnavailable

pytestmark = pytest.mark.both_stores


async def test_a_conflict_is_tried_again_and_success_ends_it() -> None:
    tried = 0
    for attempt in attempts():
        async with attempt:
            tried += 1
            if tried < 3:
                raise Conflict("read again")
    assert tried == 3


async def test_after_fifty_conflicts_the_error_is_raised() -> None:
    tried = 0
    with pytest.raises(Conflict):
        for attempt in attempts():
            async with attempt:
                tried += 1
                raise Conflict("for ever")
    assert tried == 51


async def test_an_absent_store_is_raised_unless_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "_WAITS_SECONDS", (0.0, 0.0))
    for patient, times in ((False, 1), (True, 3)):
        tried = 0
        with pytest.raises(StoreUnavailable):
            for attempt in attempts(patient=patient):
                async with attempt:
                    tried += 1
                    raise StoreUnavailable("away")
        assert tried == times


async def test_an_unanswered_commit_is_known_to_every_later_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "_WAITS_SECONDS", (0.0,))
    known: list[bool] = []
    for attempt in attempts(patient=True):
        async with attempt:
            known.append(attempt.outcome_unknown)
            if len(known) == 1:
                raise Conflict("read again")
            if len(known) == 2:
                raise StoreUnavailable("no answer")
            if len(known) == 3:
                raise Conflict("read again")
    assert known == [False, False, True, True]


async def test_store_away_on_the_last_conflict_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole at the end of a turn: both at once fell out of the loop, and nothing was committed."""
    monkeypatch.setattr(retrying, "_CONFLICTS", 1)
    monkeypatch.setattr(retrying, "_WAITS_SECONDS", (0.0,))
    errors = iter([Conflict("read again"), StoreUnavailable("away")])
    committed = False
    for attempt in attempts(patient=True):
        async with attempt:
            if (error := next(errors, None)) is not None:
                raise error
            committed = True
    assert committed


async def test_other_errors_are_raised_at_once() -> None:
    with pytest.raises(ValueError, match="wrong"):
        for attempt in attempts(patient=True):
            async with attempt:
                raise ValueError("wrong")
