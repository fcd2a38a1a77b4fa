"""The live feed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar, Literal

import pytest

from gateway.cli.operator_commands import dead, pending
from gateway.observe import Feed, Notice
from gateway.observe.events import (
    DeliveryFailed,
    DoubtRaised,
    DuplicateDropped,
    EffectEnd,
    EventSettled,
    LeaseLost,
    LlmEnd,
    LlmStart,
    MessageReceived,
    MessageSent,
    ObservedEvent,
    PendingDecided,
    PendingResolved,
    PendingStashed,
    ToolEnd,
    TurnStart,
    WebhookRejected,
)
from gateway.observe.feed import BACKLOG
from gateway.observe.lives import MOST_LIVES, Lives
from gateway.observe.runs import action_event_id, run_id_of
from gateway.providers import ModelMessage, Response, Usage
from tests.observe.samples import ACTION, sample

OPERATED = {"dead": dead, "pending": pending}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class Odd(ObservedEvent):
    """An event of a class unknown to the feed."""

    name: ClassVar[str] = "odd"
    number: int = 0
    value: object = None
    cause: object = None
    many: object = field(default_factory=list)


async def read(feed: Feed, count: int, after: int = 0) -> list[Notice]:
    async with aclosing(feed.subscribe(after=after)) as notices:
        return [await anext(notices) for _ in range(count)]


async def test_late_reader_gets_the_backlog_and_then_new_events() -> None:
    feed = Feed(now=lambda: NOW)
    feed.read(Odd(number=1))
    reading = asyncio.create_task(read(feed, 2))
    await asyncio.to_thread(feed.read, Odd(number=2))

    first, second = await reading
    assert (first.name, first.at, first.fields["number"]) == ("odd", NOW, 1)
    assert second.fields["number"] == 2
    assert [notice.fields["number"] for notice in await read(feed, 1, after=first.seq)] == [2]


async def test_only_the_newest_are_remembered() -> None:
    feed = Feed(now=lambda: NOW)
    for number in range(BACKLOG + 5):
        feed.read(Odd(number=number))
    [oldest] = await read(feed, 1)
    assert oldest.fields["number"] == 5


async def test_after_a_restart_the_numbers_go_on() -> None:
    before, after = Feed(now=lambda: NOW), Feed(now=lambda: NOW.replace(minute=1))
    before.read(Odd())
    after.read(Odd())
    [old], [new] = await read(before, 1), await read(after, 1)
    assert new.seq > old.seq


async def test_odd_fields_raise_no_error_and_are_shortened() -> None:
    class Rude:
        def __str__(self) -> str:
            raise RuntimeError("no")

    endless: list[object] = []
    endless.append(endless)
    feed = Feed(now=lambda: NOW)
    feed.read(Odd(value=Rude(), cause={1: NOW, "long": "y" * 100_000}, many=[endless, range(5)]))

    [notice] = await read(feed, 1)
    cause = notice.fields["cause"]
    assert isinstance(cause, dict)
    assert (notice.fields["value"], cause["1"]) == ("<Rude>", str(NOW))
    assert len(str(cause["long"])) < 9_000
    assert len(str(notice.fields["many"])) < 100


async def test_an_error_is_told_with_its_traceback() -> None:
    feed = Feed(now=lambda: NOW)
    try:
        raise ValueError("no such invoice")
    except ValueError as error:
        feed.read(Odd(cause=error))

    [notice] = await read(feed, 1)
    assert "test_feed.py" in str(notice.fields["cause"])
    assert str(notice.fields["cause"]).endswith("ValueError: no such invoice\n")


async def test_reader_of_an_ended_loop_does_not_disturb_others() -> None:
    feed = Feed(now=lambda: NOW)

    def elsewhere() -> None:
        async def leave() -> None:
            await anext(feed.subscribe())

        feed.read(Odd(number=1))
        asyncio.run(leave())

    await asyncio.to_thread(elsewhere)
    feed.read(Odd(number=2))
    assert [notice.fields["number"] for notice in await read(feed, 2)] == [1, 2]


async def test_an_event_of_a_run_has_its_conversation_and_its_use() -> None:
    feed = Feed(now=lambda: NOW)
    feed.read(TurnStart("r1", conversation="bot/test:1:2", event_ids=["e"], attempt=1, cause="e"))
    usage = Usage(prompt_tokens=7, cached_prompt_tokens=3, cost_usd=0.5)
    feed.read(LlmEnd("r1", response=Response(content="Hi", model="m"), usage=usage, provider="p", duration_ms=12.6))
    feed.read(ToolEnd("r2", call_id="c", tool_name="look", result="found", duration_ms=0.4))
    _, model, tool = await read(feed, 3)
    assert (model.name, model.life.run, model.life.conversation) == ("llm_end", "r1", "bot/test:1:2")
    assert (model.fields["content"], model.fields["milliseconds"]) == ("Hi", 13)
    assert [model.fields[name] for name in ("total_tokens", "cached_tokens", "cost_usd")] == [7, 3, 0.5]
    assert (tool.fields["tool"], tool.fields["result"], tool.life.conversation) == ("look", "found", "")


@pytest.mark.parametrize(("role", "said"), [("user", "list invoices"), ("tool", "")])
async def test_a_call_to_the_model_has_the_words_it_answers(role: Literal["user", "tool"], said: str) -> None:
    feed = Feed(now=lambda: NOW)
    feed.read(sample(LlmStart, messages=[ModelMessage(role=role, content="list invoices")]))
    [notice] = await read(feed, 1)
    assert (notice.fields["said"], notice.fields["messages"]) == (said, 1)


@pytest.mark.parametrize(
    ("event", "command"),
    [
        (sample(DeliveryFailed, part_id="p1", suppressed=False), "askfirst dead replay p1"),
        (sample(DeliveryFailed, part_id="p1", suppressed=True), ""),
        (sample(EventSettled, how="put aside"), "askfirst dead list"),
        (sample(EventSettled, how="answered"), ""),
        (sample(DoubtRaised, why="undeliverable"), "askfirst dead list"),
        (sample(DoubtRaised, why="unknown", action_id="a1"), "askfirst pending settle a1 done|failed"),
        (sample(PendingResolved, status="unknown"), "askfirst pending settle a1 done|failed"),
    ],
)
async def test_a_failure_has_the_command_that_mends_it(event: ObservedEvent, command: str) -> None:
    feed = Feed(now=lambda: NOW)
    feed.read(event)
    [notice] = await read(feed, 1)
    assert notice.mend == command
    if command:
        group, name = command.split()[1:3]
        assert name in OPERATED[group].commands


# ── The lives of messages: the events of each message ──


PLACE = "bot/web:-:ana"
ACTED = replace(ACTION, conversation=PLACE)


def run(event_id: str) -> str:
    return run_id_of(PLACE, event_id)


def asked(lives: Lives, event_id: str = "m1", action_id: str = "a1") -> str:
    """Record a message with a question after it. Return the id of the run."""
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


def test_events_after_a_question_belong_to_its_message() -> None:
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
