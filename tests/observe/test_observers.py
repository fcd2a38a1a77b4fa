"""AgentObserver's methods, the lines of LoggingObserver, and RecordingObserver."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any

import pytest

from gateway import AgentObserver, LoggingObserver
from gateway.observe.events import (
    EVENTS,
    Cancelled,
    LlmEnd,
    ObservedEvent,
    RunEnd,
    RunError,
    RunStart,
    ToolChunk,
    ToolEnd,
    ToolErrorRaised,
    ToolStart,
    TurnEnd,
    WebhookHandled,
)
from gateway.observe.observer import arguments
from gateway.observe.teller import Teller
from gateway.testing import RecordingObserver
from tests.observe.samples import ACTION, ADDRESS, NOW, PERSON, TEXT, sample, texts

METHODS = """
run_start run_id messages system_prompt
run_end run_id result
error run_id error context
iteration_start run_id iteration messages
iteration_end run_id iteration response
llm_start run_id messages model system_prompt
llm_end run_id response usage
llm_retry run_id attempt max_retries error backoff_seconds
cache_hit run_id model response
usage run_id usage
tool_start run_id call_id tool_name tool_args
tool_end run_id call_id tool_name result duration_ms
tool_error run_id call_id tool_name error tool_args duration_ms
tool_chunk run_id call_id tool_name chunk
tool_loop_detected run_id detector_name details
policy_decision run_id tool_name decision reason tool_args
structured_validate run_id success attempt error
provider_fallback run_id failed_provider next_provider error
model_switch run_id iteration old_model new_model
cost_warning run_id cost_used threshold
budget_exceeded run_id reason tokens_used cost_used
cancelled run_id iteration reason
guardrail_triggered run_id stage guardrail_name action detail
prompt_compressed run_id before_tokens after_tokens messages_compressed
session_load run_id session_id message_count
session_save run_id session_id message_count
memory_trim run_id messages_removed messages_remaining reason
memory_summarize run_id summary messages_summarized
entity_extraction run_id entities_extracted turn_count
kg_extraction run_id triples_extracted
batch_start batch_id prompts_count
batch_end batch_id results_count errors_count total_duration_ms
webhook_rejected channel status reason
message_received event_id address person
duplicate_dropped event_id address
turn_start run_id conversation event_ids attempt
turn_end run_id conversation stop_reason duration_ms
pending_stashed run_id action
pending_decided action person intent
pending_launched action
pending_resolved action status
message_sent run_id address message_id
delivery_failed run_id address reason
artifact_delivered run_id address sha256
"""
"""The methods of the fixed surface, without ``on_``, with their parameters in order."""
OUR_METHODS = """
llm_error run_id attempt error duration_ms
vetoed run_id stage interceptor tool_name
feedback run_id conversation message_id value
"""
"""The methods beyond the surface."""
TABLE = {(words := line.split())[0]: tuple(words[1:]) for line in (METHODS + OUR_METHODS).splitlines() if line}

LENGTHS_ONLY = {
    "artifacts", "chunk", "detail", "details", "files", "result", "said", "summary", "system_prompt",
    "cancelled.reason", "structured_validate.error", "webhook_rejected.why",
}  # fmt: skip
"""The text fields without names, ids and fixed words."""


# ── the methods ──


def test_observer_has_the_methods_of_the_surface() -> None:
    methods = {name.removeprefix("on_"): method for name, method in vars(AgentObserver).items() if name[:3] == "on_"}
    del methods["event"]
    assert {name: tuple(inspect.signature(each).parameters)[1:] for name, each in methods.items()} == TABLE


@pytest.mark.parametrize("name", TABLE)
def test_each_parameter_is_a_field_of_the_event(name: str) -> None:
    assert set(TABLE[name]) <= sample(EVENTS[name]).values().keys()
    assert arguments(name) == TABLE[name]


@pytest.mark.ledger("OBS-01")
@pytest.mark.parametrize("kind", EVENTS.values(), ids=list(EVENTS))
def test_base_observer_ignores_every_event(kind: type[ObservedEvent]) -> None:
    observer = AgentObserver()
    assert observer.on_event(sample(kind)) is None
    assert not observer.wants(kind.name)


@pytest.mark.parametrize("name", TABLE)
def test_overridden_method_gets_the_fields_it_names(name: str) -> None:
    def method(self: Any, *args: Any) -> Any:
        return args

    observer = type("One", (AgentObserver,), {f"on_{name}": method})()
    event = sample(EVENTS[name])
    assert observer.on_event(event) == tuple(getattr(event, each) for each in TABLE[name])
    assert [each for each in EVENTS if observer.wants(each)] == [name]


def test_an_observer_of_all_events_wants_each() -> None:
    class All(AgentObserver):
        def on_event(self, event: ObservedEvent) -> None: ...

    assert all(All().wants(name) for name in EVENTS)


# ── LoggingObserver ──


def logged(caplog: pytest.LogCaptureFixture, event: ObservedEvent, *, content: bool = False) -> dict[str, Any]:
    caplog.clear()
    with caplog.at_level(logging.INFO, "askfirst.observe"):
        LoggingObserver(content=content, now=lambda: NOW).on_event(event)
    [record] = caplog.records
    assert (record.name, record.levelno) == ("askfirst.observe", logging.INFO)
    line: dict[str, Any] = json.loads(record.getMessage())
    return line


@pytest.mark.ledger("OBS-26")
def test_the_lines_of_a_run(caplog: pytest.LogCaptureFixture) -> None:
    start = sample(RunStart, run_id="r", model="m", provider="p", parent_run_id=None)
    line = logged(caplog, start)
    assert list(line)[:3] == ["event", "timestamp", "run_id"]
    assert line == {
        "event": "run_start",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "run_id": "r",
        "messages": 2,
        "system_prompt_chars": len(start.system_prompt),
        "model": "m",
        "provider": "p",
        "parent_run_id": None,
    }
    line = logged(caplog, sample(LlmEnd, run_id="r", provider="p", from_checkpoint=False))
    assert line.items() >= {
        ("event", "llm_end"), ("run_id", "r"), ("model", "gpt-x"), ("tokens", 150), ("prompt_tokens", 100),
        ("duration_ms", 12.5), ("response_chars", len(TEXT)), ("tool_calls", 1), ("finish", "stop"),
    }  # fmt: skip
    line = logged(caplog, ToolEnd("r", call_id="c", tool_name="pay", result="x" * 120, duration_ms=3.5))
    assert line.items() >= {
        ("event", "tool_end"), ("run_id", "r"), ("call_id", "c"), ("tool", "pay"), ("result_chars", 120),
        ("duration_ms", 3.5),
    }  # fmt: skip
    line = logged(caplog, sample(RunEnd))
    assert line.items() >= {("stop_reason", "answered"), ("iterations", 2), ("tokens", 150), ("response_chars", 15)}


@pytest.mark.ledger("OBS-26")
@pytest.mark.parametrize("kind", EVENTS.values(), ids=list(EVENTS))
def test_no_line_holds_a_text(caplog: pytest.LogCaptureFixture, kind: type[ObservedEvent]) -> None:
    ids = {name: value for name, value in texts(kind).items() if not {name, f"{kind.name}.{name}"} & LENGTHS_ONLY}
    line = logged(caplog, sample(kind, **ids))
    written = json.dumps(line)
    assert TEXT not in written
    assert ACTION.code not in written
    for name, value in ids.items():
        assert line["tool" if name == "tool_name" else name] == value


@pytest.mark.parametrize("kind", [ToolStart, ToolErrorRaised, ToolChunk, RunStart, RunEnd, LlmEnd, RunError, Cancelled])
def test_with_content_the_texts_are_written(caplog: pytest.LogCaptureFixture, kind: type[ObservedEvent]) -> None:
    assert TEXT in json.dumps(logged(caplog, sample(kind), content=True))


def test_errors_and_actions_are_named(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, sample(RunError))["error"] == "ValueError"
    line = logged(caplog, sample(EVENTS["pending_launched"]))
    assert line.items() >= {("action_id", "a1"), ("tool", "pay"), ("state", ACTION.state), ("arguments", 1)}
    line = logged(caplog, sample(EVENTS["message_received"], person=PERSON, address=ADDRESS))
    assert (line["person"], line["address"]) == ("web:-:ana", "web:-:ana")


def test_a_quiet_logger_gets_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "askfirst.observe"):
        LoggingObserver(now=lambda: pytest.fail("a line was made")).on_event(sample(TurnEnd))
    assert caplog.records == []


# ── RecordingObserver ──


async def test_the_recorder_keeps_events_in_order() -> None:
    seen = RecordingObserver()
    teller = Teller(observers=[seen])
    await teller.tell(ToolStart, "r", call_id="c1", tool_name="pay", tool_args={"n": 1})
    await teller.tell(WebhookHandled, channel="web", status=200, duration_ms=1.0)
    teller.tell_now(ToolEnd, "r", call_id="c1", tool_name="pay", result="ok", duration_ms=2.0)

    assert seen.events == [
        ("tool_start", {"run_id": "r", "call_id": "c1", "tool_name": "pay", "tool_args": {"n": 1}}),
        ("tool_end", {"run_id": "r", "call_id": "c1", "tool_name": "pay", "result": "ok", "duration_ms": 2.0}),
    ]
