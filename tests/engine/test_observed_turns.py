"""The events of a message, from its receipt to the delivery of the reply, and the trace that its turn leaves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from channels import Undeliverable
from gateway import Agent, AgentConfig, ChannelAgent, emit_artifact, tool
from gateway.observe.events import (
    DeliveryFailed,
    DuplicateDropped,
    LeaseLost,
    LeaseTakenOver,
    MessageReceived,
    MessageSent,
    RunEvent,
    TurnFailed,
    TurnStart,
)
from gateway.observe.runs import run_id_of
from gateway.observe.trace import AgentTrace
from gateway.providers import ProviderError
from gateway.stored import keys
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.turn import Outcome
from tests.engine.rig import Rig, Worker, message, rig, until

PLACE = "agent/test:bot:ana"
STEPS = ["session_load", "llm_call", "tool_selection", "tool_execution", "llm_call", "session_save"]


@tool(read_only=True)
async def look(where: str) -> str:
    """Look."""
    return f"nothing {where}"


def bot(*steps: object, **options: object) -> ChannelAgent:
    config = AgentConfig(**options)
    return ChannelAgent(Agent([look], provider=ScriptedProvider(steps), config=config))  # type: ignore[arg-type]


async def stored_trace(chat: Rig, run_id: str) -> AgentTrace | None:
    key = keys.key(chat.store, PLACE, keys.trace, run_id)
    record = (await chat.store.get([key]))[key]
    return AgentTrace.from_dict(record.value) if isinstance(record.value, dict) else None


@pytest.mark.ledger("OBS-21", "OBS-25", "LOOP-07", "PYG-34", "PYG-35", "PYG-39", "PYG-40", "PYG-43", "TRC-12", "PYG-30")
async def test_one_id_leads_from_the_receipt_to_the_delivery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst.events")
    async with rig(bot(ToolCall("look", {"where": "here"}), "Nothing."), tmp_path) as chat:
        written = message("ana", "look here")
        await chat.take(written)
        await chat.take(written)
        await chat.turns()
        told = chat.worker.told
        names = [event.name for event in told.events]
        assert names == [
            *("message_received", "duplicate_dropped", "turn_start", "session_load", "run_start"),
            *("iteration_start", "llm_start", "llm_end", "usage", "tool_start", "tool_end", "iteration_end"),
            *("iteration_start", "llm_start", "llm_end", "usage", "iteration_end", "run_end"),
            *("event_settled", "session_save", "turn_end", "message_sent"),
        ]
        (event_id,) = written.event_ids
        run_id = run_id_of(PLACE, event_id)
        assert {event.run_id for event in told.events if isinstance(event, RunEvent)} == {run_id}
        (received,), (dropped,) = told.of_kind(MessageReceived), told.of_kind(DuplicateDropped)
        assert (received.event_id, received.address, received.person) == (event_id, written.address, written.person)
        assert dropped.event_id == event_id
        (begun,), (sent,) = told.of_kind(TurnStart), told.of_kind(MessageSent)
        assert (begun.conversation, begun.event_ids, begun.attempt) == (PLACE, [event_id], 1)
        assert (sent.address, sent.conversation, sent.cause) == (written.address, PLACE, event_id)
        assert {vars(each)["run"] for each in caplog.records if hasattr(each, "run")} == {run_id}
        trace = await stored_trace(chat, run_id)
        assert trace is not None
        assert [step.type for step in trace] == STEPS
        metadata = dict(trace.metadata)
        assert len(str(metadata.pop("person"))) == 16
        assert metadata == {"bot": "agent", "channel": "test", "event": event_id}


async def test_metadata_of_the_author_replaces_none_of_the_gateways(tmp_path: Path) -> None:
    async with rig(bot("Hello.", trace_metadata={"bot": "mine", "team": "billing"}), tmp_path) as chat:
        written = message("ana", "hello")
        await chat.take(written)
        await chat.turns()
        trace = await stored_trace(chat, run_id_of(PLACE, written.event_ids[0]))
        assert trace is not None
        assert (trace.metadata["bot"], trace.metadata["team"]) == ("agent", "billing")


async def test_no_trace_is_stored_when_traces_are_off(tmp_path: Path) -> None:
    async with rig(bot("Hello."), tmp_path) as chat:
        chat.worker.context.traces_ttl_seconds = 0.0
        written = message("ana", "hello")
        await chat.take(written)
        await chat.turns()
        assert await stored_trace(chat, run_id_of(PLACE, written.event_ids[0])) is None


@pytest.mark.ledger("PYG-31")
async def test_a_stored_trace_ends_with_its_time(tmp_path: Path) -> None:
    async with rig(bot("Hello."), tmp_path) as chat:
        written = message("ana", "hello")
        await chat.take(written)
        await chat.turns()
        run_id = run_id_of(PLACE, written.event_ids[0])
        trace = await stored_trace(chat, run_id)
        assert trace is not None and AgentTrace.from_dict(trace.to_dict()) == trace
        chat.store.offset_seconds += chat.worker.context.traces_ttl_seconds + 1
        assert await stored_trace(chat, run_id) is None


async def test_a_turn_that_is_taken_over_has_one_trace(tmp_path: Path) -> None:
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
        assert isinstance(await other.turn_of(taken), Outcome)
        run_id = run_id_of(PLACE, written.event_ids[0])
        assert _runs(chat.worker) == _runs(other) == {run_id}
        assert [event.kind for event in chat.worker.told.of_kind(LeaseLost)] == ["turn"]
        assert [event.kind for event in other.told.of_kind(LeaseTakenOver)] == ["turn"]
        trace = await stored_trace(chat, run_id)
        assert trace is not None
        assert [(step.type, step.from_checkpoint) for step in trace] == [
            ("session_load", False),
            ("llm_call", True),
            ("tool_selection", True),
            ("tool_execution", True),
            ("llm_call", False),
            ("session_save", False),
        ]
        assert [step.duration_ms for step in trace if step.from_checkpoint] == [None, None, None]


def _runs(worker: Worker) -> set[str]:
    return {event.run_id for event in worker.told.events if isinstance(event, RunEvent)}


@pytest.mark.ledger("PYG-37", "PYG-42")
async def test_a_failed_attempt_is_told_and_its_retry_has_its_id(tmp_path: Path) -> None:
    down = ProviderError("script", "unreachable", retryable=True)
    async with rig(bot(down, "Hello.", max_retries=0), tmp_path) as chat:
        await chat.hears("ana", "hello")
        await chat.later(6)
        (failed,) = chat.worker.told.of_kind(TurnFailed)
        assert (failed.error, failed.why) == (down, "script: unreachable")
        first, second = chat.worker.told.of_kind(TurnStart)
        assert (first.run_id, first.attempt, second.run_id, second.attempt) == (failed.run_id, 1, failed.run_id, 2)


@pytest.mark.ledger("PYG-36")
async def test_a_turn_that_takes_too_long_ends_with_timeout(tmp_path: Path) -> None:
    async with rig(bot(asyncio.Event()), tmp_path) as chat:
        ended: list[str] = []
        chat.bot.on("turn_end")(lambda run_id, conversation, stop_reason, duration_ms: ended.append(stop_reason))
        await chat.says("ana", "hello")
        await chat.worker.turn(deadline_seconds=0.01)
        assert ended == ["timeout"]


async def test_the_trace_of_a_call_is_in_its_result() -> None:
    async with bot(ToolCall("look", {"where": "here"}), "Nothing.") as running:
        result = await running.ask_channel("ana", "look here")
    assert [step.type for step in result.trace] == STEPS
    assert (result.trace.stop_reason, len(result.trace.run_id)) == ("answered", 32)


@pytest.mark.ledger("PYG-46")
async def test_a_function_hears_one_event_of_its_bot() -> None:
    own = bot("Hello.")
    heard: list[str] = []

    @own.on("message_sent")
    async def note(run_id: str, address: object, message_id: str | None) -> None:
        heard.append(f"{address} {message_id}")

    async with ChatDriver(own) as chat:
        await chat.says("ana", "hello")
        await chat.engine.stop()
    assert heard == ["test:bot:ana 1"]
    with pytest.raises(ValueError, match="did you mean message_sent"):
        own.on("messages_sent")


@pytest.mark.ledger("OBS-25")
async def test_a_delivered_file_is_told() -> None:
    @tool(read_only=True)
    async def chart() -> str:
        """Chart."""
        emit_artifact(content=b"1,2", filename="chart.csv")
        return "made"

    own = ChannelAgent(Agent([chart], provider=ScriptedProvider([ToolCall("chart", {}), "Here."])))
    told: list[str] = []
    own.on("artifact_delivered")(lambda run_id, address, sha256: told.append(sha256))
    async with ChatDriver(own) as chat:
        await chat.says("ana", "chart")
        (file,) = chat.last.artifacts
    assert told == [file.sha256]


@pytest.mark.ledger("OBS-25")
async def test_a_message_that_cannot_be_delivered_is_told(tmp_path: Path) -> None:
    async with rig(bot("Hello."), tmp_path) as chat:
        chat.platform.will = [Undeliverable("403 blocked")]
        written = message("ana", "hello")
        await chat.take(written)
        await chat.turns()
        (failed,) = chat.worker.told.of_kind(DeliveryFailed)
        assert (failed.address, failed.reason, failed.cause) == (
            written.address,
            "not deliverable: 403 blocked",
            written.event_ids[0],
        )


async def test_a_function_that_is_added_later_hears_what_comes_then() -> None:
    own, heard = bot("One.", "Two."), list[str]()
    async with ChatDriver(own) as chat:
        await chat.says("ana", "one")
        own.on("llm_end")(lambda run_id, response, usage: heard.append(response.content))
        await chat.says("ana", "two")
    assert heard == ["Two."]
