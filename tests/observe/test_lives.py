"""The lives of messages: which events belong to which message."""

from __future__ import annotations

from dataclasses import replace

from gateway.observe.events import (
    DoubtRaised,
    DuplicateDropped,
    EffectEnd,
    EventSettled,
    LeaseLost,
    LlmEnd,
    MessageReceived,
    MessageSent,
    PendingDecided,
    PendingStashed,
    TurnStart,
    WebhookRejected,
)
from gateway.observe.lives import MOST_LIVES, Lives
from gateway.observe.runs import action_event_id, run_id_of
from tests.observe.samples import ACTION, sample

PLACE = "bot/web:-:ana"
ACTED = replace(ACTION, conversation=PLACE)


def run(event_id: str) -> str:
    return run_id_of(PLACE, event_id)


def asked(lives: Lives, event_id: str = "m1", action_id: str = "a1") -> str:
    """Tell a message that leads to a question. Return the id of its run."""
    lives.of(sample(MessageReceived, event_id=event_id, conversation=PLACE))
    lives.of(sample(TurnStart, run_id=run(event_id), conversation=PLACE, event_ids=[event_id], cause=event_id))
    lives.of(sample(PendingStashed, run_id=run(event_id), action=replace(ACTED, pending_action_id=action_id)))
    return run(event_id)


def test_a_message_and_its_run_are_one_life() -> None:
    lives = Lives()
    assert lives.of(sample(MessageReceived, event_id="m1", conversation=PLACE)) == (run("m1"), PLACE, [])
    lives.of(sample(TurnStart, run_id=run("m1"), conversation=PLACE, event_ids=["m1"], cause="m1"))
    assert lives.of(sample(LlmEnd, run_id=run("m1")))[:2] == (run("m1"), PLACE)


def test_messages_of_one_turn_are_one_life() -> None:
    lives = Lives()
    for each in ("m1", "m2"):
        lives.of(sample(MessageReceived, event_id=each, conversation=PLACE))
    start = sample(TurnStart, run_id=run("m1"), conversation=PLACE, event_ids=["m1", "m2"], cause="m1")
    assert lives.of(start).joins == [run("m2")]


def test_what_follows_a_question_belongs_to_its_message() -> None:
    lives = Lives()
    life = asked(lives)
    lives.of(sample(MessageReceived, event_id="press", conversation=PLACE, kind="ButtonPress"))
    assert lives.of(sample(PendingDecided, action=ACTED)).run == life
    settled = sample(
        EventSettled,
        run_id=run("press"),
        conversation=PLACE,
        event_ids=["press"],
        how="decided by button",
        actions=["a1"],
    )
    assert lives.of(settled) == (life, PLACE, [run("press")])
    assert lives.of(sample(EffectEnd, action=ACTED)).run == life
    told = sample(MessageSent, run_id=run(action_event_id("a1")), conversation=PLACE, cause=action_event_id("a1"))
    assert lives.of(told).run == life
    assert lives.of(sample(MessageSent, run_id=run("press"), conversation=PLACE, cause="press")).run == life
    assert lives.of(sample(DoubtRaised, action_id="a1", conversation=PLACE)).run == life


def test_a_deadline_belongs_to_the_question_and_stop_to_itself() -> None:
    lives = Lives()
    one, _ = asked(lives), asked(lives, "m2", "a2")
    fields = {"conversation": PLACE, "how": "decided"}
    expiry = sample(EventSettled, run_id=run("expiry/a1"), event_ids=["expiry/a1"], actions=[], **fields)
    assert lives.of(expiry).run == one
    lives.of(sample(MessageReceived, event_id="stop", conversation=PLACE))
    stop = sample(EventSettled, run_id=run("stop"), event_ids=["stop"], actions=["a1", "a2"], **fields)
    assert lives.of(stop) == (run("stop"), PLACE, [])
    turn = sample(EventSettled, run_id=run("m2"), event_ids=["m2"], actions=["a1"], conversation=PLACE, how="answered")
    assert lives.of(turn).run == run("m2")


def test_question_from_before_this_process_has_its_own_life() -> None:
    lives = Lives()
    life = run(action_event_id("a1"))
    assert lives.of(sample(PendingDecided, action=ACTED)).run == life
    assert lives.of(sample(MessageSent, run_id=life, conversation=PLACE, cause=action_event_id("a1"))).run == life


def test_a_twin_a_refused_request_and_a_lease_have_no_life() -> None:
    lives = Lives()
    assert lives.of(sample(DuplicateDropped, conversation=PLACE)) == ("", PLACE, ())
    assert lives.of(sample(LeaseLost, conversation=PLACE)) == ("", PLACE, ())
    assert lives.of(sample(WebhookRejected)) == ("", "", ())


def test_old_lives_are_forgotten() -> None:
    lives = Lives()
    asked(lives)
    for number in range(MOST_LIVES):
        asked(lives, f"n{number}", f"b{number}")
    assert lives.of(sample(PendingDecided, action=ACTED)).run == run(action_event_id("a1"))
