"""The spans of turns that do not go their plain way: taken over, failed, decided by a word, begun by the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, AgentConfig, ChannelAgent, tool
from gateway.observe.events import LlmEnd, ObservedEvent, PendingResolved
from gateway.observe.genai import span_id
from gateway.observe.runs import run_id_of
from gateway.observe.spans import SpanReader
from gateway.providers import ProviderError
from gateway.testing import ScriptedProvider, ToolCall
from tests.engine.rig import message, rig, until

PLACE = "agent/test:bot:ana"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@tool(read_only=True)
async def look(where: str) -> str:
    """Look."""
    return f"nothing {where}"


@tool(confirm="Wipe {what}?")
async def wipe(what: str) -> str:
    """Wipe."""
    return f"{what} is wiped"


def bot(*steps: object, **options: Any) -> ChannelAgent:
    config = AgentConfig(**options)
    return ChannelAgent(Agent([look, wipe], provider=ScriptedProvider(steps), config=config))  # type: ignore[arg-type]


def spans_of(events: Iterable[ObservedEvent]) -> list[dict[str, Any]]:
    """The spans that a process makes of its events. A millisecond passes between two looks at the clock."""
    made: list[dict[str, Any]] = []
    ticks = count()
    reader = SpanReader(
        lambda span: made.append(dict(span)),
        agent_name="agent",
        content=False,
        clock=lambda: NOW + timedelta(milliseconds=next(ticks)),
        pseudonym=lambda text: text.replace("ana", "~1"),
    )
    for event in events:
        if type(event) in reader.kinds:
            reader.read(event)
    return made


def named(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [span for span in spans if span["name"] == name]


@pytest.mark.ledger("TRC-15")
async def test_a_turn_that_is_taken_over_has_one_trace_of_spans(tmp_path: Path) -> None:
    hold = asyncio.Event()
    served = bot(ToolCall("look", {"where": "here"}), hold, "Never said.", "Nothing.")
    script = served.agent.provider
    assert isinstance(script, ScriptedProvider)
    async with rig(served, tmp_path) as chat:
        written = message("ana", "look here")
        await chat.take(written)
        lease = await chat.worker.lease("turn", lease_seconds=0.0)
        dying = asyncio.create_task(chat.worker.turn_of(lease))
        await until(lambda: len(script.requests) >= 2)
        other = chat.another()
        taken = await other.lease("turn")
        hold.set()
        assert await dying is None
        await other.turn_of(taken)
        first, second = spans_of(chat.worker.told.events), spans_of(other.told.events)
    run_id = run_id_of(PLACE, written.event_ids[0])
    assert {span["trace_id"] for span in (*first, *second)} == {run_id}
    assert [span["name"] for span in first] == ["receive test"]
    (turn,) = named(second, "invoke_agent agent")
    assert (turn["parent_span_id"], turn["attributes"]["askfirst.attempt"]) == (first[0]["span_id"], 2)
    steps = [span for span in second if span["parent_span_id"] == turn["span_id"]]
    earlier = [span for span in steps if span["attributes"].get("askfirst.from_checkpoint")]
    assert [span["name"] for span in earlier][:2] == [f"chat {_model(other.told.events)}", "tool_selection"]
    assert all(span["start_time_unix_nano"] == span["end_time_unix_nano"] for span in earlier)
    assert len([span for span in steps if span["name"].startswith("chat")]) == 2


def _model(events: Iterable[ObservedEvent]) -> str:
    return next(event.response.model for event in events if isinstance(event, LlmEnd))


async def test_each_attempt_at_a_turn_has_a_span_below_the_receipt(tmp_path: Path) -> None:
    down = ProviderError("script", "unreachable", retryable=True)
    async with rig(bot(down, "Hello.", max_retries=0), tmp_path) as chat:
        await chat.hears("ana", "hello")
        await chat.later(6)
        spans = spans_of(chat.worker.told.events)
    (received,) = named(spans, "receive test")
    first, second = named(spans, "invoke_agent agent")
    assert {first["parent_span_id"], second["parent_span_id"]} == {received["span_id"]}
    assert first["span_id"] != second["span_id"]
    assert [span["status"]["status_code"] for span in (first, second)] == ["ERROR", "UNSET"]
    assert first["attributes"]["error.type"] == "ProviderError"


@pytest.mark.ledger("TRC-15")
async def test_a_twin_is_a_span_of_the_first_ones_trace(tmp_path: Path) -> None:
    async with rig(bot("Hello."), tmp_path) as chat:
        written = message("ana", "hello")
        await chat.take(written)
        await chat.take(written)
        spans = spans_of(chat.worker.told.events)
    (received,), (twin,) = named(spans, "receive test"), named(spans, "duplicate")
    assert (twin["trace_id"], twin["parent_span_id"]) == (received["trace_id"], received["span_id"])
    assert twin["attributes"]["askfirst.step.type"] == "dedup"
    assert received["attributes"]["gen_ai.conversation.id"] == "agent/test:bot:~1"


async def test_messages_of_one_turn_are_linked(tmp_path: Path) -> None:
    async with rig(bot("Hello."), tmp_path) as chat:
        await chat.take(message("ana", "one"), message("ana", "two"))
        await chat.turns()
        spans = spans_of(chat.worker.told.events)
    first, second = named(spans, "receive test")
    (turn,) = named(spans, "invoke_agent agent")
    assert turn["trace_id"] == first["trace_id"]
    assert turn["links"] == [{"trace_id": second["trace_id"], "span_id": second["span_id"]}]


@pytest.mark.ledger("TRC-15")
async def test_a_word_that_decides_links_to_the_action(tmp_path: Path) -> None:
    async with rig(bot(ToolCall("wipe", {"what": "disk"})), tmp_path) as chat:
        await chat.hears("ana", "wipe it", "no")
        spans = spans_of(chat.worker.told.events)
        (closed,) = chat.worker.told.of_kind(PendingResolved)
    asking, deciding = named(spans, "invoke_agent agent")
    (kept,) = named(spans, "pending_action wipe")
    link = {"trace_id": kept["trace_id"], "span_id": kept["span_id"]}
    assert (asking["links"], deciding["links"]) == ([link], [link])
    assert deciding["attributes"]["askfirst.stop_reason"] == "decided by word"
    assert kept["links"] == [{"trace_id": asking["trace_id"], "span_id": span_id(asking["trace_id"], 0)}]
    assert kept["attributes"]["askfirst.outcome"] == closed.status == "refused"
