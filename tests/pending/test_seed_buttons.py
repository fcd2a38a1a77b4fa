"""selectools' pending stores: the answers of buttons, and shortened times. In memory and on Redis."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.pending import DEFAULT_IGNORE_TTL_SECONDS, compute_args_digest
from gateway.pending.seal import compute_digest
from gateway.pending.seed.base import PendingStore
from tests.pending.conftest import NoYes, Place, Ran, stashed, status
from tests.stored import action_of, edited

ANOTHER = "5e" * 16


@pytest.mark.ledger("PEND-54", "PEND-68")
async def test_a_button_needs_no_parser(place: Place, ran: Ran) -> None:
    pending = await place.open(parser=NoYes())
    action = await stashed(pending, ran.deletes())
    assert await pending.pop_if_confirmed("ana", "yes") is None
    pins: dict[str, Any] = {"expected_kind": "delete_invoice", "expected_id": action.pending_action_id}
    outcome = await pending.pop_if_intent("ana", "confirm", **pins)
    assert outcome is not None and (outcome.status, outcome.result) == ("executed", "INV-42 is deleted.")
    assert await pending.pop_if_intent("ana", "confirm", **pins) is None
    assert ran.done == ["INV-42"]


@pytest.mark.ledger("PEND-25")
async def test_a_cancel_disarms(pending: PendingStore, ran: Ran) -> None:
    await stashed(pending, ran.deletes())
    outcome = await pending.pop_if_intent("ana", "cancel")
    assert outcome is not None and (outcome.status, outcome.record.status) == ("cancelled", "cancelled")
    assert await pending.get("ana") is None
    assert await pending.pop_if_intent("ana", "confirm") is None
    assert ran.done == []


@pytest.mark.ledger("PEND-18", "PEND-24")
async def test_a_button_runs_no_other_arguments_than_it_shows(pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes())
    another = compute_args_digest({"invoice_id": "INV-43"})
    assert status(await pending.pop_if_intent("ana", "ignore", args_digest=another)) == "ignored"
    outcome = await pending.pop_if_intent("ana", "confirm", args_digest=another)
    assert outcome is not None
    assert (outcome.status, outcome.detail, outcome.result) == ("digest_mismatch", None, None)
    assert (outcome.record.pending_action_id, outcome.record.status) == (action.pending_action_id, "cancelled")
    assert await pending.get("ana") is None
    assert await pending.pop_if_intent("ana", "confirm", args_digest=action.args_digest) is None
    assert ran.done == []
    again = await stashed(pending, ran.deletes())
    assert status(await pending.pop_if_intent("ana", "confirm", args_digest=again.args_digest)) == "executed"


@pytest.mark.ledger("PEND-18", "PEND-24")
@pytest.mark.parametrize("intent", ["confirm", "cancel", "ignore"])
@pytest.mark.parametrize("digest_too", [False, True])
async def test_a_button_runs_no_arguments_changed_in_the_store(
    place: Place, pending: PendingStore, ran: Ran, intent: str, *, digest_too: bool
) -> None:
    """Also with fitting new digests: the seal covers the digests too."""
    pending.register_executor_factory("delete_invoice", ran.factory)
    action = await stashed(pending, ran.deletes("closure"))
    ((key, stored),) = (await place.stored(pending, "action/")).items()
    args = {"invoice_id": "INV-43"}
    changes: dict[str, Any] = {"args": args}
    if digest_too:
        digest = compute_digest(replace(action_of(stored), args=args))
        changes |= {"args_digest": compute_args_digest(args), "digest": digest}
    await place.change(pending, key, edited(stored, **changes))
    for _ in range(2):
        outcome = await pending.pop_if_intent("ana", intent, expected_id=action.pending_action_id)
        assert outcome is not None
        assert (outcome.status, outcome.detail) == ("digest_mismatch", "tampered")
        assert outcome.record.status == "cancelled"
    assert await pending.get("ana") is None
    assert ran.done == []


@pytest.mark.ledger("PEND-57", "PEND-58", "PEND-59")
async def test_a_button_of_another_question_neither_fires_nor_disarms(pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes())
    for intent in ("confirm", "cancel", "ignore", "bogus"):
        kind = await pending.pop_if_intent("ana", intent, expected_kind="cancel_subscription", expected_id=ANOTHER)
        assert kind is not None and (kind.status, kind.detail, kind.record) == ("kind_mismatch", None, action)
        other = await pending.pop_if_intent("ana", intent, expected_kind="delete_invoice", expected_id=ANOTHER)
        assert other is not None and (other.status, other.detail) == ("kind_mismatch", "id_mismatch")
        assert await pending.get("ana") == action
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"


@pytest.mark.ledger("PEND-60")
async def test_ignored_action_stays_for_ten_seconds(pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes(), ttl_seconds=300)
    outcome = await pending.pop_if_intent("ana", "ignore")
    assert outcome is not None and outcome.status == "ignored"
    left = await pending.get("ana")
    assert left == outcome.record
    assert left is not None and left.expires_at is not None and left.pending_action_id == action.pending_action_id
    assert left.expires_at - action.requested_at < timedelta(seconds=DEFAULT_IGNORE_TTL_SECONDS + 5)
    assert DEFAULT_IGNORE_TTL_SECONDS == 10.0
    assert status(await pending.pop_if_intent("ana", "confirm")) == "executed"
    assert ran.done == ["INV-42"]


@pytest.mark.ledger("PEND-60")
async def test_an_ignore_never_gives_more_time(place: Place, pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes(), ttl_seconds=3)
    outcome = await pending.pop_if_intent("ana", "ignore", ignore_ttl_seconds=100)
    assert outcome is not None and outcome.record.expires_at == action.expires_at
    await place.later(4)
    assert status(await pending.pop_if_intent("ana", "confirm")) == "expired"
    assert await pending.get("ana") is None
    assert ran.done == []


async def test_an_ignore_for_no_time_at_all_is_its_end(place: Place, pending: PendingStore) -> None:
    await stashed(pending)
    assert status(await pending.pop_if_intent("ana", "ignore", ignore_ttl_seconds=0)) == "ignored"
    await place.later(0.001)
    assert await pending.get("ana") is None


@pytest.mark.ledger("PEND-55")
async def test_an_unknown_intent_is_an_ignore_and_is_logged(
    pending: PendingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A known intent is trimmed, and case does not matter."""
    unknown: list[Any] = ["bogus", "", None, "yes"]
    await stashed(pending, lambda: "ok")
    with caplog.at_level(logging.WARNING, "askfirst.pending"):
        for intent in unknown:
            assert status(await pending.pop_if_intent("ana", intent)) == "ignored"
        assert status(await pending.pop_if_intent("ana", "  Confirm \n")) == "executed"
    lines = [each.getMessage() for each in caplog.records if "intent" in each.getMessage()]
    assert len(lines) == len(unknown)
    assert all(repr(intent) in line for intent, line in zip(unknown, lines, strict=True))


@pytest.mark.ledger("PEND-56")
async def test_expired_action_is_reported_before_any_other_fault(place: Place, pending: PendingStore, ran: Ran) -> None:
    for intent in ("confirm", "cancel", "ignore", "bogus"):
        assert await pending.pop_if_intent("ana", intent) is None
    await stashed(pending, ran.deletes())
    await place.later(61)
    for intent in ("confirm", "cancel", "ignore", "bogus"):
        outcome = await pending.pop_if_intent("ana", intent, expected_kind="another", expected_id=ANOTHER)
        assert status(outcome) == "expired"
    assert ran.done == []


async def test_invalid_seconds_are_refused_even_without_an_action(pending: PendingStore) -> None:
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ignore_ttl_seconds"):
            await pending.pop_if_intent("ana", "confirm", ignore_ttl_seconds=seconds)
        with pytest.raises(ValueError, match="seconds"):
            await pending.tighten_ttl("ana", seconds)


@pytest.mark.ledger("PEND-62")
async def test_tightening_shortens_and_keeps_all_else(place: Place, pending: PendingStore, ran: Ran) -> None:
    action = await stashed(pending, ran.deletes(), ttl_seconds=3600)
    tightened = await pending.tighten_ttl("ana", 15, expected_id=action.pending_action_id)
    assert tightened is not None and tightened.expires_at is not None
    assert tightened.pending_action_id == action.pending_action_id
    assert timedelta(0) < tightened.expires_at - action.requested_at < timedelta(seconds=20)
    assert await pending.tighten_ttl("ana", 100) == tightened
    await place.later(10)
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    assert ran.done == ["INV-42"]


@pytest.mark.ledger("PEND-62")
async def test_tightening_an_absent_action_has_no_effect(place: Place, pending: PendingStore) -> None:
    assert await pending.tighten_ttl("ana", 5) is None
    action = await stashed(pending)
    assert await pending.tighten_ttl("ana", 5, expected_id=ANOTHER) is None
    assert await pending.get("ana") == action
    await place.later(61)
    assert await pending.tighten_ttl("ana", 5) is None


@pytest.mark.ledger("PEND-34")
async def test_times_are_not_whole_seconds(place: Place, pending: PendingStore) -> None:
    await stashed(pending, ttl_seconds=600)
    tightened = await pending.tighten_ttl("ana", 30.5)
    assert tightened is not None and tightened.expires_at is not None
    left = tightened.expires_at - await (await pending.open()).now()
    await place.later(left.total_seconds() - 5)
    assert await pending.get("ana") is not None
    await place.later(5.1)
    assert await pending.get("ana") is None


@pytest.mark.ledger("PEND-62")
@pytest.mark.parametrize("how", ["tighten", "ignore", "not at all"])
async def test_stored_records_end_with_the_shortened_time(place: Place, pending: PendingStore, how: str) -> None:
    """The `seed/` record ends with the time for an answer, the record of the action 30 days later."""
    await stashed(pending, ttl_seconds=86400)
    if how == "tighten":
        await pending.tighten_ttl("ana", 10)
    elif how == "ignore":
        await pending.pop_if_intent("ana", "ignore")
    left = 86400 if how == "not at all" else 10
    month = 30 * 86400
    for name, ends in (("seed/", left), ("action/", left + month), ("open/", left + month)):
        await place.later(ends - 5 - place.passed)
        assert len(await place.stored(pending, name)) == 1
        await place.later(ends + 1 - place.passed)
        if name == "seed/":
            assert await place.stored(pending, name) == {}
    for name in ("seed/", "action/", "open/"):
        assert await place.stored(pending, name) == {}


@pytest.mark.ledger("PEND-63", "PEND-64")
async def test_tightening_during_a_press_revives_and_disarms_no_action(place: Place, ran: Ran) -> None:
    """In any order: one execution, and the next action in the scope stays as stashed."""
    one = await place.open()
    other = one if place.kind == "memory" else await place.open(elsewhere=place.kind == "redis")
    for each in (one, other):
        each.register_executor_factory("delete_invoice", ran.factory)
    for number in range(10):
        action = await stashed(one)
        pinned: dict[str, Any] = {"expected_id": action.pending_action_id}
        outcomes = await asyncio.gather(
            other.pop_if_intent("ana", "confirm", **pinned),
            one.tighten_ttl("ana", 5, **pinned),
            one.pop_if_intent("ana", "confirm", **pinned),
            other.tighten_ttl("ana", 6, **pinned),
        )
        assert [status(outcomes[0]), status(outcomes[2])].count("executed") == 1
        assert len(ran.done) == number + 1
        fresh = await stashed(one)
        assert await other.tighten_ttl("ana", 1, **pinned) is None
        late = await other.pop_if_intent("ana", "confirm", **pinned)
        assert late is not None and late.detail == "id_mismatch"
        assert await other.get("ana") == fresh
        await one.drop("ana")
