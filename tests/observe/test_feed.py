"""The live feed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime

from gateway.observe import Feed, Notice
from gateway.observe.events import LlmEnd, ToolEnd, TurnStart
from gateway.observe.feed import BACKLOG
from gateway.providers import Response, Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def read(feed: Feed, count: int, after: int = 0) -> list[Notice]:
    async with aclosing(feed.subscribe(after=after)) as notices:
        return [await anext(notices) for _ in range(count)]


async def test_a_late_reader_gets_the_backlog_and_then_what_comes() -> None:
    feed = Feed(now=lambda: NOW)
    feed.publish("tool_start", tool="a")
    reading = asyncio.create_task(read(feed, 2))
    await asyncio.to_thread(feed.publish, "tool_end", tool="a")

    first, second = await reading
    assert (first.name, first.at, first.fields) == ("tool_start", NOW, {"tool": "a"})
    assert second.name == "tool_end"
    assert [notice.name for notice in await read(feed, 1, after=first.seq)] == ["tool_end"]


async def test_only_the_newest_are_remembered() -> None:
    feed = Feed(now=lambda: NOW)
    for number in range(BACKLOG + 5):
        feed.publish("n", number=number)
    [oldest] = await read(feed, 1)
    assert oldest.fields == {"number": 5}


async def test_after_a_restart_the_numbers_go_on() -> None:
    before, after = Feed(now=lambda: NOW), Feed(now=lambda: NOW.replace(minute=1))
    before.publish("old")
    after.publish("new")
    [old], [new] = await read(before, 1), await read(after, 1)
    assert new.seq > old.seq


async def test_odd_fields_raise_nothing_and_are_shortened() -> None:
    class Rude:
        def __str__(self) -> str:
            raise RuntimeError("no")

    endless: list[object] = []
    endless.append(endless)
    feed = Feed(now=lambda: NOW)
    feed.publish("x", name="also a field", rude=Rude(), endless=endless, long="y" * 100_000, many=range(5), at={1: NOW})

    [notice] = await read(feed, 1)
    assert (notice.fields["name"], notice.fields["rude"]) == ("also a field", "<Rude>")
    assert notice.fields["at"] == {"1": str(NOW)}
    assert len(str(notice.fields["long"])) < 9_000
    assert len(str(notice.fields["endless"])) < 100


async def test_an_error_is_told_with_its_traceback() -> None:
    feed = Feed(now=lambda: NOW)
    try:
        raise ValueError("no such invoice")
    except ValueError as error:
        feed.publish("effect.failed", cause=error)

    [notice] = await read(feed, 1)
    assert "test_feed.py" in str(notice.fields["cause"])
    assert str(notice.fields["cause"]).endswith("ValueError: no such invoice\n")


async def test_a_reader_whose_loop_has_ended_harms_nobody() -> None:
    feed = Feed(now=lambda: NOW)

    def elsewhere() -> None:
        async def leave() -> None:
            await anext(feed.subscribe())

        feed.publish("first")
        asyncio.run(leave())

    await asyncio.to_thread(elsewhere)
    feed.publish("second")
    assert [notice.name for notice in await read(feed, 2)] == ["first", "second"]


async def test_an_event_of_a_run_has_the_conversation_of_its_turn() -> None:
    feed = Feed(now=lambda: NOW)
    feed.read(TurnStart("r1", conversation="bot/test:1:2", event_ids=["e"], attempt=1, cause="e"))
    usage = Usage(prompt_tokens=7, cost_usd=0.5)
    feed.read(LlmEnd("r1", response=Response(content="Hi", model="m"), usage=usage, provider="p", duration_ms=12.6))
    feed.read(ToolEnd("r2", call_id="c", tool_name="look", result="found", duration_ms=0.4))
    _, model, tool = await read(feed, 3)
    assert (model.name, model.fields["conversation"], model.fields["milliseconds"]) == ("llm_end", "bot/test:1:2", 13)
    assert (model.fields["content"], model.fields["total_tokens"], model.fields["cost_usd"]) == ("Hi", 7, 0.5)
    assert (tool.fields["tool"], tool.fields["result"], "conversation" in tool.fields) == ("look", "found", False)
