"""The events of a message, from the receipt to the delivery of the reply, and the trace of the turn."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from channels import Message, Undeliverable
from gateway import Agent, AgentConfig, ChannelAgent, FallbackProvider, ToolContext, emit_artifact, tool
from gateway.bot.turn import Outcome
from gateway.config.settings import EngineRules
from gateway.observe.event_log import EventLog
from gateway.observe.events import (
    CacheHit,
    DeliveryFailed,
    DuplicateDropped,
    LeaseLost,
    LeaseTakenOver,
    LlmEnd,
    MessageReceived,
    MessageSent,
    ObservedEvent,
    PendingResolved,
    RunEvent,
    SessionLoad,
    SessionSave,
    TurnEnd,
    TurnFailed,
    TurnStart,
)
from gateway.observe.genai import span_id
from gateway.observe.runs import run_id_of
from gateway.observe.spans import SpanReader
from gateway.observe.trace import AgentTrace
from gateway.providers import ProviderError, Response, Usage
from gateway.stored import keys
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.engine.rig import Rig, Worker, message, rig

PLACE = "agent/test:bot:ana"
STEPS = ["session_load", "llm_call", "tool_selection", "tool_execution", "llm_call", "session_save"]


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


async def heard(chat: Rig, text: str = "hello") -> str:
    """Have a message answered, and return the id of the run."""
    written = message("ana", text)
    await chat.take(written)
    await chat.turns()
    return run_id_of(PLACE, written.event_ids[0])


@asynccontextmanager
async def taken_over(files: Path) -> AsyncIterator[tuple[Rig, Worker, str]]:
    """Yield a chat after a take-over of the turn by another worker, the other worker, and the id of the run."""
    hold = asyncio.Event()
    async with rig(bot(ToolCall("look", {"where": "here"}), hold, "Never said.", "Nothing."), files) as chat:
        written = message("ana", "look here")
        await chat.take(written)
        other, taken, zombie = await chat.taken_over()
        hold.set()
        assert await zombie is None
        assert isinstance(await other.turn_of(taken), Outcome)
        yield chat, other, run_id_of(PLACE, written.event_ids[0])


async def stored_trace(chat: Rig, run_id: str) -> AgentTrace | None:
    key = keys.key(chat.store, PLACE, keys.trace, run_id)
    record = (await chat.store.get([key]))[key]
    return AgentTrace.from_dict(record.value) if isinstance(record.value, dict) else None


@asynccontextmanager
async def answered(files: Path) -> AsyncIterator[tuple[Rig, Message]]:
    """Yield a chat after a message came twice and was answered with a tool."""
    async with rig(bot(ToolCall("look", {"where": "here"}), "Nothing."), files) as chat:
        written = message("ana", "look here")
        await chat.take(written)
        await chat.take(written)
        await chat.turns()
        yield chat, written


@pytest.mark.ledger("LOOP-07", "PYG-39", "PYG-40")
async def test_steps_of_a_turn_are_told_in_order(tmp_path: Path) -> None:
    async with answered(tmp_path) as (chat, _):
        assert chat.worker.told.names() == [
            *("message_received", "duplicate_dropped", "turn_start", "session_load", "run_start"),
            *("iteration_start", "llm_start", "llm_end", "usage", "tool_start", "tool_end", "iteration_end"),
            *("iteration_start", "llm_start", "llm_end", "usage", "iteration_end", "run_end"),
            *("event_settled", "session_save", "turn_end", "message_sent"),
        ]


@pytest.mark.ledger("PYG-34", "PYG-35", "PYG-43")
async def test_a_turn_is_told_from_its_message_to_its_end(tmp_path: Path) -> None:
    async with answered(tmp_path) as (chat, written):
        told, (event_id,) = chat.worker.told, written.event_ids
        (received,), (begun,), (ended,) = told.of_kind(MessageReceived), told.of_kind(TurnStart), told.of_kind(TurnEnd)
        assert (received.event_id, received.address, received.person) == (event_id, written.address, written.person)
        assert (begun.conversation, begun.event_ids, begun.attempt) == (PLACE, [event_id], 1)
        assert (ended.conversation, ended.stop_reason, ended.duration_ms > 0) == (PLACE, "answered", True)


@pytest.mark.ledger("OBS-21", "TRC-12")
async def test_history_of_a_turn_is_told_with_its_length(tmp_path: Path) -> None:
    async with answered(tmp_path) as (chat, written):
        (loaded,), (saved,) = chat.worker.told.of_kind(SessionLoad), chat.worker.told.of_kind(SessionSave)
        assert (loaded.session_id, loaded.message_count, saved.session_id, saved.message_count) == (PLACE, 0, PLACE, 4)
        trace = await stored_trace(chat, run_id_of(PLACE, written.event_ids[0]))
        assert trace is not None and [step.type for step in trace] == STEPS


@pytest.mark.ledger("OBS-25", "PYG-30")
async def test_one_id_leads_from_the_receipt_to_the_delivery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst.events")
    async with answered(tmp_path) as (chat, written):
        told, (event_id,) = chat.worker.told, written.event_ids
        run_id = run_id_of(PLACE, event_id)
        assert {event.run_id for event in told.events if isinstance(event, RunEvent)} == {run_id}
        (dropped,), (sent,) = told.of_kind(DuplicateDropped), told.of_kind(MessageSent)
        assert dropped.event_id == event_id
        assert (sent.address, sent.conversation, sent.cause) == (written.address, PLACE, event_id)
        assert {vars(each)["run"] for each in caplog.records if hasattr(each, "run")} == {run_id}
        trace = await stored_trace(chat, run_id)
        assert trace is not None
        metadata = dict(trace.metadata)
        assert len(str(metadata.pop("person"))) == 16
        assert metadata == {"bot": "agent", "channel": "test", "event": event_id}


async def test_metadata_of_the_author_replaces_none_of_the_gateways(tmp_path: Path) -> None:
    async with rig(bot("Hello.", trace_metadata={"bot": "mine", "team": "billing"}), tmp_path) as chat:
        trace = await stored_trace(chat, await heard(chat))
        assert trace is not None
        assert (trace.metadata["bot"], trace.metadata["team"]) == ("agent", "billing")


async def test_no_trace_is_stored_when_traces_are_off(tmp_path: Path) -> None:
    async with rig(bot("Hello."), tmp_path) as chat:
        chat.worker.context.rules = EngineRules(traces_ttl_seconds=0.0)
        assert await stored_trace(chat, await heard(chat)) is None


@pytest.mark.ledger("PYG-31")
async def test_a_stored_trace_ends_with_its_time(tmp_path: Path) -> None:
    async with rig(bot("Hello."), tmp_path) as chat:
        run_id = await heard(chat)
        trace = await stored_trace(chat, run_id)
        assert trace is not None and AgentTrace.from_dict(trace.to_dict()) == trace
        chat.store.offset_seconds += chat.worker.context.rules.traces_ttl_seconds + 1
        assert await stored_trace(chat, run_id) is None


async def test_a_turn_that_is_taken_over_has_one_trace(tmp_path: Path) -> None:
    async with taken_over(tmp_path) as (chat, other, run_id):
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
    spans = spans_of(chat.worker.told.events)
    (received,) = named(spans, "receive test")
    one, two = named(spans, "invoke_agent agent")
    assert {one["parent_span_id"], two["parent_span_id"]} == {received["span_id"]}
    assert one["span_id"] != two["span_id"]
    assert [span["status"]["status_code"] for span in (one, two)] == ["ERROR", "UNSET"]
    assert one["attributes"]["error.type"] == "ProviderError"


@pytest.mark.ledger("PYG-36", "PYG-42")
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


async def test_function_added_later_hears_only_later_events() -> None:
    own, heard = bot("One.", "Two."), list[str]()
    async with ChatDriver(own) as chat:
        await chat.says("ana", "one")
        own.on("llm_end")(lambda run_id, response, usage: heard.append(response.content))
        await chat.says("ana", "two")
    assert heard == ["Two."]


NOW = datetime(2026, 3, 1, tzinfo=UTC)


def spans_of(events: Iterable[ObservedEvent]) -> list[dict[str, Any]]:
    """Return the spans of a process's events. A millisecond passes between two looks at the clock."""
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
    async with taken_over(tmp_path) as (chat, other, run_id):
        first, second = spans_of(chat.worker.told.events), spans_of(other.told.events)
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


CANARY = "canary-3f9c"


@tool(read_only=True, name="look")
async def look_or_fail(where: str) -> str:
    """Look."""
    if where == "nowhere":
        raise ValueError(CANARY)
    return CANARY


@tool(confirm="Delete {name}?")
async def delete(name: str) -> str:
    """Delete something."""
    if name == "stone":
        raise ValueError(CANARY)
    return CANARY


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    names = ("askfirst.events", "askfirst.actions")
    return [record.getMessage() for record in caplog.records if record.name in names]


def line(caplog: pytest.LogCaptureFixture, message: str) -> Any:
    return next(record for record in caplog.records if record.getMessage() == message)


def everything(caplog: pytest.LogCaptureFixture) -> str:
    return str([record.__dict__ for record in caplog.records if record.name.startswith("askfirst")])


async def test_a_switch_to_the_next_model_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    down = ScriptedProvider([ProviderError("scripted", CANARY, retryable=True)])
    chain = FallbackProvider([down, ScriptedProvider(["Here I am."])])
    async with ChatDriver(Agent(provider=chain)) as chat:
        await chat.says("ana", "hello")
    assert chat.last.text == "Here I am."
    said = line(caplog, "next model asked")
    assert (said.levelname, said.failed_provider, said.next_provider) == ("WARNING", "scripted", "scripted")
    assert said.event == line(caplog, "turn begun").event
    assert CANARY not in everything(caplog)


async def test_log_follows_a_turn_and_its_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    script: list[Any] = [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "nowhere"}), "Done."]
    async with ChatDriver(
        ChannelAgent(Agent([look_or_fail]), language="en"), provider=ScriptedProvider(script)
    ) as chat:
        await chat.says("ana", CANARY)
    assert lines(caplog) == [
        "accepted",
        "turn begun",
        "model answered",
        "tool ran",
        "model answered",
        "tool failed",
        "model answered",
        "committed",
        "delivered",
    ]
    ran, failed, answered = (line(caplog, each) for each in ("tool ran", "tool failed", "model answered"))
    assert (ran.tool, ran.event, type(ran.milliseconds)) == ("look", line(caplog, "accepted").event, int)
    assert (failed.levelno, failed.tool) == (logging.WARNING, "look")
    assert failed.what.startswith("ValueError (test_observed_turns.py:")
    assert answered.total_tokens == 0
    assert not hasattr(answered, "cost"), "this model costs nothing"
    assert CANARY not in everything(caplog)


@pytest.mark.ledger("CFG-11")
async def test_log_has_tokens_costs_tools_and_hits_of_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst.events")
    log = EventLog()
    said: dict[str, Any] = {"run_id": "r", "provider": "openai", "duration_ms": 7.4}
    usage = Usage(prompt_tokens=100, completion_tokens=20, cached_prompt_tokens=60)
    response = Response(content=CANARY, model="m")
    log.read(LlmEnd(response=response, usage=replace(usage, cost_usd=0.0012345678), **said))
    log.read(LlmEnd(response=response, usage=usage, **said))
    log.read(CacheHit(run_id="r", model="m", response=response))
    known, unknown, hit = caplog.records
    assert vars(known).items() >= {"model": "m", "total_tokens": 120, "cached_prompt_tokens": 60}.items()
    assert vars(known)["cost_usd"] == 0.001235
    assert (vars(unknown)["cost"], "cost_usd" in vars(unknown)) == ("unknown", False)
    assert (hit.getMessage(), vars(hit)["model"]) == ("cache answered", "m")
    assert CANARY not in everything(caplog)


@pytest.mark.parametrize(("name", "state"), [("feather", "done"), ("stone", "failed")])
async def test_log_follows_an_action_without_its_words(caplog: pytest.LogCaptureFixture, name: str, state: str) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    script = [ToolCall("delete", {"name": name})]
    async with ChatDriver(ChannelAgent(Agent([delete]), language="en"), provider=ScriptedProvider(script)) as chat:
        await chat.says("ana", CANARY)
        code = chat.last.text.partition("**OK ")[2][:4]
        await chat.presses("ana", "Confirm")
    told = [each for each in lines(caplog) if each.startswith(("tool ", "action ", "effect "))]
    assert told[:5] == ["tool asks", "action asked", "action shown", "action decided", "action launched"]
    assert told[-2:] == ["effect ended", "action finished"]
    asks, decided, ended = (line(caplog, each) for each in ("tool asks", "action decided", "effect ended"))
    assert (asks.tool, asks.action, decided.person) == ("delete", ended.action, "test:bot:ana")
    assert (ended.tool, ended.state, type(ended.milliseconds)) == ("delete", state, int)
    assert CANARY not in everything(caplog)
    assert code not in everything(caplog), "who reads the log must not be able to confirm"
    if state == "failed":
        assert any("(delete): ValueError (test_observed_turns.py:" in each for each in told)


async def test_exception_text_reaches_neither_chat_nor_model_nor_log(caplog: pytest.LogCaptureFixture) -> None:
    async def preview(name: str) -> str:
        raise KeyError(CANARY)

    @tool(confirm=preview)
    async def shred(name: str) -> str:
        """Shred something."""
        return name

    caplog.set_level(logging.DEBUG, "askfirst")
    provider = ScriptedProvider(
        [
            ToolCall("look", {"where": "nowhere"}),
            ToolCall("shred", {"name": "paper"}),
            "Both failed.",
            ToolCall("delete", {"name": "stone"}),
            "So did that.",
        ]
    )
    async with ChatDriver(ChannelAgent(Agent([look_or_fail, shred, delete]), language="en"), provider=provider) as chat:
        await chat.says("ana", "look_or_fail, then shred")
        await chat.says("ana", "delete the stone")
        await chat.presses("ana", "Confirm")
        await chat.says("ana", "why?")
        shown = [message.text for message in chat.messages]
    asked = [message.content for request in provider.requests for message in request.messages]
    assert any("Error executing tool 'look': ValueError (test_observed_turns.py:" in text for text in asked)
    assert any("Error executing tool 'shred': KeyError (test_observed_turns.py:" in text for text in asked)
    assert any(
        "the preview of shred failed: KeyError (test_observed_turns.py:" in each.getMessage() for each in caplog.records
    )
    assert CANARY not in f"{asked} {shown} {everything(caplog)}"


async def test_a_turn_that_fails_says_where_and_for_which_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    bot = ChannelAgent(Agent([]))

    @bot.command("report")
    async def report(ctx: ToolContext, text: str) -> str:
        raise ValueError(CANARY)

    async with ChatDriver(bot, provider=ScriptedProvider([])) as chat:
        await chat.says("ana", "/report")
    (failed,) = [each for each in caplog.records if each.getMessage().startswith("a turn of ")]
    assert re.search(r" failed: ValueError \(test_observed_turns\.py:\d+ report\)$", failed.getMessage())
    assert vars(failed)["event"] == vars(line(caplog, "turn begun"))["event"]
    assert CANARY not in caplog.text


async def test_name_of_a_missing_tool_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    provider = ScriptedProvider([ToolCall(f"tell {CANARY}", {}), "Sorry."])
    async with ChatDriver(ChannelAgent(Agent([look_or_fail])), provider=provider) as chat:
        await chat.says("ana", "hello")
    assert vars(line(caplog, "tool failed"))["tool"] == "(unknown)"
    assert CANARY not in everything(caplog)


@pytest.mark.parametrize("way", ["button", "code", "word", "/stop"])
async def test_log_says_how_a_person_decided(caplog: pytest.LogCaptureFixture, way: str) -> None:
    caplog.set_level(logging.INFO, "askfirst")
    script = [ToolCall("delete", {"name": "feather"})]
    async with ChatDriver(ChannelAgent(Agent([delete]), language="en"), provider=ScriptedProvider(script)) as chat:
        await chat.says("ana", "delete it")
        code = chat.last.text.partition("**OK ")[2][:4]
        match way:
            case "button":
                await chat.presses("ana", "Confirm")
            case "code":
                await chat.says("ana", f"OK {code}")
            case "word":
                await chat.says("ana", "yes")
            case _:
                await chat.says("ana", "/stop")
    decided = [record for record in caplog.records if str(getattr(record, "how", "")).startswith("decided")]
    assert [record.how for record in decided] == [f"decided by {way}"]  # type: ignore[attr-defined]
    assert decided[0].actions == [line(caplog, "action asked").action]  # type: ignore[attr-defined]
