"""The live feed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Literal

import pytest

from gateway.cli.operator_commands import dead, pending
from gateway.observe import Feed, Notice
from gateway.observe.events import (
    DeliveryFailed,
    DoubtRaised,
    EventSettled,
    LlmEnd,
    LlmStart,
    ObservedEvent,
    PendingResolved,
    ToolEnd,
    TurnStart,
)
from gateway.observe.feed import BACKLOG
from gateway.providers import ModelMessage, Response, Usage
from tests.observe.samples import sample

OPERATED = {"dead": dead, "pending": pending}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class Odd(ObservedEvent):
    """An event of no class that the feed knows."""

    name: ClassVar[str] = "odd"
    number: int = 0
    value: object = None
    cause: object = None
    many: object = field(default_factory=list)


async def read(feed: Feed, count: int, after: int = 0) -> list[Notice]:
    async with aclosing(feed.subscribe(after=after)) as notices:
        return [await anext(notices) for _ in range(count)]


async def test_a_late_reader_gets_the_backlog_and_then_what_comes() -> None:
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


async def test_odd_fields_raise_nothing_and_are_shortened() -> None:
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


async def test_a_reader_whose_loop_has_ended_harms_nobody() -> None:
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
