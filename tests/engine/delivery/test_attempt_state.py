"""The attempt state: every state and event, every plan, and every plan after a failure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from channels import Ambiguous, Json, OptedOut, RateLimited, Receipt, SendError, Unavailable, Undeliverable, Unreachable
from gateway.engine.delivery.attempt_state import (
    AttemptState,
    Drop,
    GiveUp,
    PartFacts,
    Remember,
    Send,
    Suppress,
    TakeReceipt,
    Wait,
    Warn,
    WrongAttempt,
    plan,
    plan_after_failure,
    refused,
    repeating,
    state_from_json,
    unanswered,
    warned,
)

STATES: tuple[AttemptState, ...] = ("none", "sent", "noted", "repeated")
EVENTS: dict[str, Callable[[AttemptState], AttemptState]] = {
    "unanswered": unanswered,
    "refused": refused,
    "warned": warned,
    "repeating": repeating,
}
LEADS_TO: dict[str, tuple[AttemptState | None, ...]] = {
    "unanswered": ("sent", "sent", "noted", "repeated"),
    "refused": ("none", "sent", "noted", "noted"),
    "warned": (None, "noted", None, None),
    "repeating": (None, None, "repeated", None),
}
"""By event, for each of `STATES`. None: the event cannot happen there."""
FOUND = Receipt(message_id="7")
GONE = GiveUp("it may have been sent")


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [(state, event, after) for event in EVENTS for state, after in zip(STATES, LEADS_TO[event], strict=True)],
)
def test_a_state_and_an_event_lead_to_this_state(state: AttemptState, event: str, after: AttemptState | None) -> None:
    if after is None:
        with pytest.raises(WrongAttempt):
            EVENTS[event](state)
    else:
        assert EVENTS[event](state) == after


@pytest.mark.parametrize("state", STATES)
def test_a_stored_state_is_read_as_itself(state: AttemptState) -> None:
    assert state_from_json(None if state == "none" else state) == state


@pytest.mark.parametrize("stored", ["newer", "none", 7, True, [], {}], ids=str)
def test_an_unknown_state_counts_as_the_last(stored: Json) -> None:
    assert state_from_json(stored) == "repeated"


PLANS: dict[str, tuple[PartFacts, tuple[object, ...]]] = {
    "nothing else": (PartFacts(), (Send(), Warn(), Send(repeats=True), GONE)),
    "the platform knows it": (PartFacts(receipt=FOUND), (TakeReceipt(FOUND),) * 4),
    "the platform knows there is none": (PartFacts(absent=True), (Send(),) * 4),
    "the person opted out": (PartFacts(opted_out=True), (GiveUp("not sent: they have opted out"),) * 4),
    "too old": (PartFacts(too_old=True), (GiveUp("it waited for too long"),) * 4),
    "the worker died": (PartFacts(worker_died=True), (Remember(), Warn(), Send(repeats=True), GONE)),
    "the worker died, and there is none": (
        PartFacts(worker_died=True, absent=True),
        (Remember(), Send(), Send(), Send()),
    ),
    "a prompt or an edit": (PartFacts(harmless=True), (Send(),) * 4),
    "a settled prompt": (PartFacts(settled=True, harmless=True), (Drop(), Send(), Send(), Send())),
    "a settled prompt whose worker died": (
        PartFacts(settled=True, harmless=True, worker_died=True),
        (Remember(), Send(), Send(), Send()),
    ),
    "the bot repeats nothing": (PartFacts(may_repeat=False), (Send(), GONE, GONE, GONE)),
    "the bot repeats nothing, and there is none": (PartFacts(may_repeat=False, absent=True), (Send(),) * 4),
    "the bot repeats nothing, and it is a prompt": (PartFacts(may_repeat=False, harmless=True), (Send(),) * 4),
}


@pytest.mark.parametrize(
    ("facts", "state", "step"),
    [(facts, state, step) for facts, steps in PLANS.values() for state, step in zip(STATES, steps, strict=True)],
    ids=[f"{name}, {state}" for name in PLANS for state in STATES],
)
def test_a_state_and_the_facts_lead_to_this_step(facts: PartFacts, state: AttemptState, step: object) -> None:
    assert plan(state, facts) == step


def every_fact() -> list[PartFacts]:
    flags = ("absent", "opted_out", "too_old", "worker_died", "settled", "harmless", "may_repeat")
    found = (None, FOUND)
    return [
        PartFacts(receipt=receipt, **dict(zip(flags, values, strict=True)))
        for receipt in found
        for values in product((False, True), repeat=len(flags))
    ]


@pytest.mark.parametrize("state", STATES)
def test_every_plan_ends_and_repeats_in_doubt_only_after_warning(state: AttemptState) -> None:
    for facts in every_fact():
        now, steps = state, list[object]()
        while True:
            step = plan(now, facts)
            assert step not in steps
            steps.append(step)
            if isinstance(step, Remember):
                now = unanswered(now)
            elif isinstance(step, Warn):
                now = warned(now)
            else:
                break
        doubtful = now != "none" and not facts.absent and not facts.harmless
        if isinstance(step, Send):
            assert step.repeats == doubtful
            assert not doubtful or (facts.may_repeat and now == "noted" and repeating(now) == "repeated")
        assert facts.may_repeat or Warn() not in steps


STOPPED, BLOCKED = OptedOut("stop"), Unreachable("blocked")
FAILURES: list[tuple[SendError, dict[str, object], object]] = [
    (Undeliverable("400"), {}, GiveUp("not deliverable: 400")),
    (Undeliverable("400"), {"edits": True}, Drop()),
    (STOPPED, {}, Suppress(STOPPED)),
    (STOPPED, {"edits": True}, Suppress(STOPPED)),
    (BLOCKED, {}, Suppress(BLOCKED)),
    (BLOCKED, {"edits": True}, Suppress(BLOCKED)),
    (RateLimited("429", retry_after_seconds=7.0), {"failures": 9}, Wait(seconds=7.0, why="429", failed=False)),
    (RateLimited("429", retry_after_seconds=1e15), {}, Wait(seconds=86_400.0, why="429", failed=False)),
    (RateLimited("429", retry_after_seconds=float("nan")), {}, Wait(seconds=86_400.0, why="429", failed=False)),
    (Unavailable("502"), {}, Wait(seconds=1.0, why="Unavailable: 502", failed=True)),
    (Unavailable("502"), {"failures": 3, "reports": True}, Wait(seconds=15.0, why="Unavailable: 502", failed=True)),
    (Unavailable("502"), {"failures": 99}, Wait(seconds=300.0, why="Unavailable: 502", failed=True)),
    (Ambiguous("timeout"), {"failures": 1}, Wait(seconds=2.0, why="Ambiguous: timeout", failed=True)),
    (Ambiguous("timeout"), {"reports": True}, Wait(seconds=10.0, why="Ambiguous: timeout", failed=True)),
    (Ambiguous("timeout"), {"reports": True, "failures": 5}, Wait(seconds=60.0, why="Ambiguous: timeout", failed=True)),
]


@pytest.mark.parametrize(("error", "given", "step"), FAILURES)
def test_a_failure_leads_to_this_step(error: SendError, given: dict[str, object], step: object) -> None:
    known: dict[str, object] = {"droppable": False, "edits": False, "failures": 0, "reports": False, **given}
    assert plan_after_failure(error, **known) == step  # type: ignore[arg-type]
    assert plan_after_failure(error, **{**known, "droppable": True}) == Drop()  # type: ignore[arg-type]
