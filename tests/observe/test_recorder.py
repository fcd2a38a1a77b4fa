"""The recorder: events of a run become the steps of the trace."""

from __future__ import annotations

import gc
import timeit
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway import AgentTrace, ProviderError
from gateway.observe.events import (
    BudgetExceeded,
    CacheHit,
    Cancelled,
    CostWarning,
    EntityExtraction,
    GuardrailTriggered,
    KgExtraction,
    LlmEnd,
    LlmError,
    LlmRetry,
    MemorySummarize,
    MemoryTrim,
    ModelSwitch,
    PendingStashed,
    PromptCompressed,
    ProviderFallback,
    RunError,
    RunEvent,
    SessionLoad,
    SessionSave,
    StructuredValidate,
    ToolEnd,
    ToolErrorRaised,
    ToolLoopDetected,
    ToolStart,
)
from gateway.observe.recorder import TraceRecorder
from gateway.observe.results import StoredTrace
from gateway.observe.teller import RunTeller, Teller
from gateway.providers.base import Response, ToolCall, ToolUsage, Usage
from gateway.tools import ToolFailed
from tests.observe.samples import ACTION, sample
from tests.observe.samples import TEXT as SECRET

BEGAN = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
RUN = "0123456789abcdef0123456789abcdef"
TEXT = "The customer is asking about billing charges"
NOTHING = Usage()


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> datetime:
        return self.now

    def move(self, milliseconds: float) -> None:
        self.now += timedelta(milliseconds=milliseconds)


class Run:
    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.recorder = TraceRecorder(RUN, clock=self.clock, **options)
        self.teller: RunTeller = RunTeller(Teller(), RUN, self.recorder)

    def tell(self, kind: Callable[..., RunEvent], **fields: Any) -> None:
        self.clock.move(fields.get("duration_ms", 0.0))
        self.teller.tell_now(kind, **fields)

    def reply(self, content: str = "", *calls: ToolCall, usage: Usage = NOTHING, **fields: Any) -> None:
        response = Response(content=content, tool_calls=calls, usage=usage, model="gpt-5-mini", finish="stop")
        self.tell(LlmEnd, response=response, usage=usage, provider="openai", **{"duration_ms": 100.0, **fields})

    def trace(self) -> AgentTrace:
        return self.recorder.trace("answered")


@pytest.fixture
def run() -> Run:
    return Run()


def call(name: str = "look_up", call_id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(call_id=call_id, name=name, args=args)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - it is returned
        return caught


# ── a turn with a tool ──


@pytest.mark.ledger("TRC-03", "TRC-05")
def test_a_turn_with_a_tool_has_four_steps(run: Run) -> None:
    run.clock.move(5)
    run.reply(TEXT, call(customer="Ana"), usage=Usage(prompt_tokens=100, completion_tokens=50), duration_ms=800.0)
    run.clock.move(1)
    run.tell(ToolEnd, call_id="c1", tool_name="look_up", result="Ana owes 5", duration_ms=12.0)
    run.reply("You owe 5.", usage=Usage(prompt_tokens=200, completion_tokens=20), duration_ms=300.0)
    run.clock.move(2)
    trace = run.trace()
    assert [step.type for step in trace] == ["llm_call", "tool_selection", "tool_execution", "llm_call"]
    asked, chose, ran, answered = trace
    assert (asked.model, asked.provider, asked.prompt_tokens, asked.completion_tokens) == (
        "gpt-5-mini",
        "openai",
        100,
        50,
    )
    assert [(step.started_at - BEGAN).total_seconds() * 1000 for step in trace] == [5, 805, 806, 818]
    assert [step.duration_ms for step in trace] == [800.0, 0.0, 12.0, 300.0]
    assert (chose.tool_name, chose.tool_args, chose.call_id) == ("look_up", {"customer": "Ana"}, "c1")
    assert (ran.tool_name, ran.tool_args, ran.call_id) == ("look_up", {"customer": "Ana"}, "c1")
    assert (ran.tool_result, ran.error) == ("Ana owes 5", None)
    assert [asked.summary, chose.summary, ran.summary, answered.summary] == [
        "calls look_up",
        "look_up",
        "look_up: 10 characters",
        "10 characters",
    ]
    assert trace.total_duration_ms == 1120.0
    assert sum(step.duration_ms or 0 for step in trace.filter(type="llm_call")) == 1100.0
    assert (trace.run_id, trace.stop_reason) == (RUN, "answered")
    assert (trace.started_at, trace.ended_at) == (BEGAN, BEGAN + timedelta(milliseconds=1120))


@pytest.mark.ledger("TRC-19")
def test_a_trace_has_its_metadata_and_its_parent() -> None:
    run = Run(parent_run_id="f" * 32, metadata={"user_id": "u123", "environment": "production"})
    trace = run.trace()
    assert trace.parent_run_id == "f" * 32
    assert trace.metadata == {"user_id": "u123", "environment": "production"}


def test_a_clock_that_stands_does_not_shorten_the_calls(run: Run) -> None:
    response = Response(content="Hi")
    for _ in range(2):
        run.teller.tell_now(LlmEnd, response=response, usage=Usage(), provider="demo", duration_ms=40.0)
    assert run.trace().total_duration_ms == 80.0


@pytest.mark.ledger("PYG-14")
def test_the_end_is_now_unless_it_is_given(run: Run) -> None:
    run.clock.move(50)
    trace = run.recorder.trace("timeout")
    assert (trace.started_at, trace.ended_at) == (BEGAN, BEGAN + timedelta(milliseconds=50))
    assert (trace.stop_reason, trace.total_duration_ms) == ("timeout", 50.0)
    trace = run.recorder.trace("timeout", BEGAN + timedelta(milliseconds=20))
    assert (trace.ended_at, trace.total_duration_ms) == (BEGAN + timedelta(milliseconds=20), 20.0)


@pytest.mark.ledger("PYG-30")
def test_the_metadata_may_change_while_the_run_is_active() -> None:
    given = {"locale": "pt"}
    run = Run(metadata=given)
    run.recorder.metadata["update_id"] = 7
    first = run.trace()
    run.recorder.metadata["update_id"] = 8
    assert first.metadata == {"locale": "pt", "update_id": 7}
    assert run.trace().metadata == {"locale": "pt", "update_id": 8}
    assert given == {"locale": "pt"}


def test_a_trace_may_be_asked_for_again_and_has_grown(run: Run) -> None:
    run.reply("Hi")
    first = run.trace()
    run.tell(SessionSave, session_id="s", message_count=2)
    assert [step.type for step in run.trace()] == ["llm_call", "session_save"]
    assert len(first) == 1


@pytest.mark.ledger("TRC-05")
def test_a_long_result_is_cut_to_200_characters(run: Run) -> None:
    run.tell(ToolEnd, call_id="c1", tool_name="look_up", result="x" * 201, duration_ms=1.0, artifacts=("a", "b"))
    (step,) = run.trace()
    assert step.tool_result == "x" * 200
    assert step.summary == "look_up: 201 characters, 2 files"


def test_a_reply_that_was_cut_off_says_so(run: Run) -> None:
    run.tell(LlmEnd, response=Response(content="abc", finish="length"), usage=Usage(), provider="demo", duration_ms=1.0)
    assert run.trace().steps[0].summary == "3 characters (length)"


def test_a_step_of_an_earlier_attempt_has_no_duration(run: Run) -> None:
    run.reply(TEXT, call(), duration_ms=0.0, from_checkpoint=True)
    run.reply("Hi")
    asked, chose, answered = run.trace()
    assert (asked.from_checkpoint, asked.duration_ms, asked.started_at) == (True, None, BEGAN)
    assert (chose.from_checkpoint, chose.duration_ms) == (True, None)
    assert (answered.from_checkpoint, answered.duration_ms) == (False, 100.0)


# ── reasoning ──


@pytest.mark.ledger("RSN-01", "RSN-03")
def test_the_text_beside_a_call_is_its_reasoning(run: Run) -> None:
    run.reply(TEXT, call())
    run.reply("You owe 5.")
    (chose,) = run.trace().filter(type="tool_selection")
    assert chose.reasoning == run.recorder.reasoning == TEXT
    assert run.recorder.reasoning_history == (TEXT,)


def test_the_history_has_one_text_for_each_reply_with_calls(run: Run) -> None:
    run.reply("First", call("a", "c1"), call("b", "c2"))
    run.reply("", call("c", "c3"))
    assert run.recorder.reasoning_history == ("First", "")
    assert run.recorder.reasoning == ""
    assert [step.reasoning for step in run.trace().filter(type="tool_selection")] == ["First", "First", ""]


def test_the_history_of_a_stored_trace_keeps_equal_texts(run: Run) -> None:
    run.reply("Again", call("a", "c1"), call("b", "c2"))
    run.reply("Again", call("a", "c3"))
    assert StoredTrace(run.trace()).reasoning_history == run.recorder.reasoning_history == ("Again", "Again")


def test_a_run_without_tools_has_no_reasoning(run: Run) -> None:
    run.reply("Hi")
    assert (run.recorder.reasoning, run.recorder.reasoning_history) == ("", ())


def test_arguments_that_could_not_be_read_are_an_error(run: Run) -> None:
    run.reply("", ToolCall(call_id="c1", name="look_up", parse_error="no JSON object"))
    (chose,) = run.trace().filter(type="tool_selection")
    assert (chose.error, chose.error_type, chose.tool_args) == ("no JSON object", "parse_error", {})


# ── errors ──


@pytest.mark.ledger("TRC-05")
def test_a_tool_that_raised_is_an_execution_with_an_error(run: Run) -> None:
    error, args = ToolFailed("Ana's card was refused"), {"customer": "Ana"}
    run.tell(
        ToolErrorRaised,
        call_id="c1",
        tool_name="charge",
        error=error,
        tool_args=args,
        duration_ms=7.0,
        what="ToolFailed",
    )
    (step,) = run.trace()
    assert (step.type, step.tool_name, step.tool_args, step.call_id) == ("tool_execution", "charge", args, "c1")
    assert (step.error, step.error_type, step.duration_ms) == ("ToolFailed", "ToolFailed", 7.0)
    assert step.started_at == BEGAN


@pytest.mark.ledger("TRC-07")
def test_a_failed_call_to_the_model_says_if_it_is_retried(run: Run) -> None:
    error = ProviderError("openai", "overloaded", retryable=True)
    for attempt, wait in ((1, 1.5), (2, None)):
        run.tell(
            LlmError,
            attempt=attempt,
            error=error,
            model="gpt-5-mini",
            provider="openai",
            duration_ms=30.0,
            retry_in_seconds=wait,
        )
        if wait is not None:
            run.tell(LlmRetry, attempt=1, max_retries=1, error=error, backoff_seconds=wait)
    run.tell(RunError, error=error, context={})
    first, last = run.trace()
    assert (first.type, first.error, first.error_type) == ("error", "openai: overloaded", "ProviderError")
    assert (first.model, first.provider, first.duration_ms) == ("gpt-5-mini", "openai", 30.0)
    assert [first.summary, last.summary] == ["attempt 1, retried in 1.5 s", "attempt 2, not retried"]


@pytest.mark.ledger("TRC-07")
def test_another_error_is_told_without_its_text(run: Run) -> None:
    run.tell(RunError, error=raised(ValueError("Ana's secret")), context={})
    (step,) = run.trace()
    assert (step.type, step.error_type) == ("error", "ValueError")
    assert (step.error or "").startswith("ValueError (test_recorder.py:")
    assert "Ana" not in str(step)


def test_a_later_error_is_a_step_of_its_own(run: Run) -> None:
    error = ProviderError("openai", "overloaded", retryable=False)
    run.tell(LlmError, attempt=1, error=error, model="m", provider="openai", duration_ms=1.0, retry_in_seconds=None)
    run.tell(RunError, error=raised(KeyError("x")), context={})
    assert [step.error_type for step in run.trace()] == ["ProviderError", "KeyError"]


class Remembered(Exception):
    """An error with a weak reference."""


def test_a_recorder_does_not_keep_an_error_alive(run: Run) -> None:
    error = Remembered()
    alive = weakref.ref(error)
    gc.disable()
    try:
        run.tell(RunError, error=error, context={})
        del error
        assert alive() is None
    finally:
        gc.enable()


# ── steps of a single event ──


@pytest.mark.ledger("TRC-14")
@pytest.mark.parametrize(
    ("kind", "fields", "type", "summary"),
    [
        (SessionLoad, {"session_id": "s", "message_count": 12}, "session_load", "12 messages"),
        (SessionSave, {"session_id": "s", "message_count": 2}, "session_save", "2 messages"),
        (
            MemoryTrim,
            {"messages_removed": 3, "messages_remaining": 9, "reason": "too large"},
            "memory_trim",
            "3 removed, 9 remain: too large",
        ),
        (MemorySummarize, {"summary": "Ana owes", "messages_summarized": 4}, "memory_summarize", "4 messages"),
        (EntityExtraction, {"entities_extracted": 2, "turn_count": 3}, "entity_extraction", "2 entities"),
        (KgExtraction, {"triples_extracted": 5}, "kg_extraction", "5 triples"),
        (
            PromptCompressed,
            {"before_tokens": 900, "after_tokens": 200, "messages_compressed": 7},
            "prompt_compressed",
            "900 -> 200 tokens, 7 messages",
        ),
        (
            BudgetExceeded,
            {"reason": "max_total_tokens", "tokens_used": 150, "cost_used": None},
            "budget_exceeded",
            "max_total_tokens",
        ),
        (Cancelled, {"iteration": 1, "reason": "it was stopped"}, "cancelled", "it was stopped"),
        (ToolLoopDetected, {"detector_name": "equal", "details": "3 of a"}, "loop_detected", "equal: 3 of a"),
        (ModelSwitch, {"iteration": 2, "old_model": "a", "new_model": "b"}, "model_switch", "a -> b"),
        (
            GuardrailTriggered,
            {"stage": "input", "guardrail_name": "pii", "action": "rewrite", "detail": "1 address"},
            "guardrail",
            "pii: rewrite at input: 1 address",
        ),
        (
            GuardrailTriggered,
            {"stage": "tool_args", "guardrail_name": "Coherence", "action": "block", "detail": ""},
            "coherence_check",
            "Coherence: block at tool_args",
        ),
        (
            GuardrailTriggered,
            {"stage": "tool_results", "guardrail_name": "output_screening", "action": "block", "detail": ""},
            "output_screening",
            "output_screening: block at tool_results",
        ),
        (
            GuardrailTriggered,
            {"stage": "input", "guardrail_name": "injection", "action": "block", "detail": ""},
            "guardrail",
            "injection: block at input",
        ),
    ],
)
def test_an_event_is_a_step(run: Run, kind: type[RunEvent], fields: dict[str, Any], type: str, summary: str) -> None:
    run.clock.move(3)
    run.tell(kind, **fields)
    (step,) = run.trace()
    assert (step.type, step.summary, step.duration_ms) == (type, summary, 0.0)
    assert step.started_at == BEGAN + timedelta(milliseconds=3)


def test_a_hit_of_the_cache_may_call_tools(run: Run) -> None:
    run.tell(CacheHit, model="gpt-5-mini", response=Response(content=TEXT, tool_calls=(call(),)))
    hit, chose = run.trace()
    assert (hit.type, hit.model, hit.summary, hit.prompt_tokens) == ("cache_hit", "gpt-5-mini", "calls look_up", None)
    assert chose.reasoning == TEXT


def test_only_a_failed_validation_is_a_step(run: Run) -> None:
    run.tell(StructuredValidate, success=False, attempt=1, error="field age: not a number")
    run.tell(StructuredValidate, success=True, attempt=2, error=None)
    (step,) = run.trace()
    assert (step.type, step.summary, step.error) == ("structured_retry", "attempt 1", "field age: not a number")


def test_fallback_step_names_both_providers(run: Run) -> None:
    error = ProviderError("openai", "overloaded", retryable=True)
    run.tell(ProviderFallback, failed_provider="openai", next_provider="anthropic", error=error)
    (step,) = run.trace()
    assert (step.type, step.summary, step.error) == ("provider_fallback", "openai -> anthropic", "openai: overloaded")


def test_a_stashed_action_is_a_step(run: Run) -> None:
    run.tell(PendingStashed, action=ACTION, call_id="c1")
    run.tell(PendingStashed, action=ACTION)
    first, last = run.trace()
    assert (first.type, first.summary, first.tool_name) == ("pending_stashed", "pay: action a1", "pay")
    assert (first.call_id, last.call_id) == ("c1", None)


NAMES = dict.fromkeys(
    ("call_id", "tool_name", "model", "requested_model", "provider", "failed_provider", "next_provider"), "a name"
)


@pytest.mark.parametrize("kind", sorted(TraceRecorder.kinds, key=str), ids=str)
def test_no_event_brings_content_into_a_span(run: Run, kind: type[RunEvent]) -> None:
    names = {name: NAMES[name] for name in NAMES if name in kind.__dataclass_fields__}
    event = sample(kind, run_id=RUN, **names)
    run.recorder.read(event)
    trace = run.trace()
    assert SECRET not in str(trace.to_otel_spans())
    assert AgentTrace.from_dict(trace.to_dict()) == trace


def test_events_without_facts_of_their_own_are_not_steps(run: Run) -> None:
    run.tell(ToolStart, call_id="c1", tool_name="look_up", tool_args={})
    run.tell(CostWarning, cost_used=0.2, threshold=0.1)
    assert len(run.trace()) == 0


def test_the_gateway_adds_steps_of_its_own(run: Run) -> None:
    run.recorder.step("inbound", summary="1 message")
    run.reply("Hi")
    run.clock.move(20)
    run.recorder.step("delivery", duration_ms=15.0, summary="1 part", error="403", error_type="Forbidden")
    inbound, _, delivery = run.trace()
    assert (inbound.type, inbound.summary, inbound.started_at) == ("inbound", "1 message", BEGAN)
    assert (delivery.type, delivery.error, delivery.duration_ms) == ("delivery", "403", 15.0)
    assert delivery.started_at == BEGAN + timedelta(milliseconds=105)


# ── usage by tool ──


@pytest.mark.ledger("USE-04")
def test_the_usage_of_each_tool_is_counted(run: Run) -> None:
    run.reply("", call("a", "c1"), call("b", "c2"), usage=Usage(prompt_tokens=100, completion_tokens=51))
    run.tell(ToolEnd, call_id="c1", tool_name="a", result="", duration_ms=10.0)
    run.tell(
        ToolErrorRaised,
        call_id="c2",
        tool_name="b",
        error=ToolFailed("no"),
        tool_args={},
        duration_ms=5.0,
        what="ToolFailed",
    )
    run.reply("", call("a", "c3"), usage=Usage(prompt_tokens=10, completion_tokens=0))
    run.tell(ToolEnd, call_id="c3", tool_name="a", result="", duration_ms=20.0)
    run.reply("Done", usage=Usage(prompt_tokens=7, completion_tokens=7))
    assert run.recorder.by_tool() == {
        "a": ToolUsage(calls=2, failed=0, duration_ms=30.0, tokens=86),
        "b": ToolUsage(calls=1, failed=1, duration_ms=5.0, tokens=75),
    }


# ── its cost ──


def test_a_reading_costs_a_few_microseconds_at_most(run: Run) -> None:
    event = ToolEnd(RUN, call_id="c1", tool_name="a", result="r", duration_ms=1.0)
    seconds = min(timeit.repeat(lambda: run.recorder.read(event), number=1000, repeat=5)) / 1000
    assert seconds < 10e-6
