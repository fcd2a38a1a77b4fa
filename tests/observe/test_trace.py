"""The trace of a run: the JSON, the file, the timeline, the spans and the bounded form."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from channels import Json, MissingSetting
from gateway import AgentTrace
from gateway.observe import TraceStep
from gateway.observe.bounded import LEAST_BYTES, MOST_BYTES, bounded
from gateway.observe.otel import SpanExport
from gateway.observe.spans import span_export
from gateway.tools.pending_action import json_text

BEGAN = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
RUN = "0123456789abcdef0123456789abcdef"
PARENT = "fedcba9876543210fedcba9876543210"


def at(milliseconds: float) -> datetime:
    return BEGAN + timedelta(milliseconds=milliseconds)


ASKED = TraceStep(
    type="llm_call",
    started_at=at(1),
    duration_ms=800.5,
    summary="calls look_up",
    model="gpt-5-mini",
    provider="openai",
    prompt_tokens=100,
    completion_tokens=50,
    cost_usd=0.0025,
)
CHOSE = TraceStep(
    type="tool_selection",
    started_at=at(801.5),
    summary="look_up",
    reasoning="The customer asks about billing",
    tool_name="look_up",
    tool_args={"customer": "Ana", "months": [1, 2]},
    call_id="c1",
)
RAN = TraceStep(
    type="tool_execution",
    started_at=at(802),
    duration_ms=12.25,
    summary="look_up: 9 characters",
    tool_name="look_up",
    tool_args={"customer": "Ana", "months": [1, 2]},
    tool_result="Ana owes 5",
    call_id="c1",
)
FAILED = TraceStep(
    type="error",
    started_at=at(815),
    duration_ms=100.0,
    summary="attempt 1, not retried",
    error="openai: overloaded",
    error_type="ProviderError",
    model="gpt-5-mini",
    provider="openai",
)
TRACE = AgentTrace(
    run_id=RUN,
    parent_run_id=PARENT,
    metadata={"user_id": "u123", "environment": "production"},
    steps=(ASKED, CHOSE, RAN, FAILED),
    started_at=BEGAN,
    ended_at=at(916),
    stop_reason="provider_error",
    total_duration_ms=916.0,
)


@pytest.mark.ledger("TRC-02")
def test_a_step_has_the_fields_that_pages_read() -> None:
    asked, chose, ran, failed = (step.to_dict() for step in TRACE)
    assert set(asked) >= {
        "type",
        "started_at",
        "duration_ms",
        "model",
        "prompt_tokens",
        "completion_tokens",
        "cost_usd",
    }
    assert (chose["summary"], chose["reasoning"]) == ("look_up", "The customer asks about billing")
    assert (ran["tool_name"], ran["tool_args"], ran["tool_result"]) == (RAN.tool_name, RAN.tool_args, RAN.tool_result)
    assert (failed["type"], failed["error"], failed["duration_ms"]) == ("error", "openai: overloaded", 100.0)


# ── a sequence of steps ──


@pytest.mark.ledger("TRC-16")
def test_a_trace_is_iterated_in_order_and_has_a_length() -> None:
    assert [step.type for step in TRACE] == ["llm_call", "tool_selection", "tool_execution", "error"]
    assert len(TRACE) == 4


@pytest.mark.ledger("TRC-17", "TRC-22")
def test_a_filter_gives_the_steps_of_a_type() -> None:
    trace = replace(TRACE, steps=(ASKED, CHOSE, RAN, replace(ASKED, duration_ms=99.5)))
    assert [step.duration_ms for step in trace.filter(type="llm_call")] == [800.5, 99.5]
    assert trace.filter(type="cache_hit") == []


# ── JSON ──


@pytest.mark.ledger("TRC-18")
def test_a_trace_has_this_json() -> None:
    value = replace(TRACE, steps=(ASKED, CHOSE)).to_dict()
    assert value == {
        "form": 1,
        "run_id": RUN,
        "parent_run_id": PARENT,
        "metadata": {"user_id": "u123", "environment": "production"},
        "start_time": "2026-03-01T09:00:00+00:00",
        "end_time": "2026-03-01T09:00:00.916000+00:00",
        "stop_reason": "provider_error",
        "total_duration_ms": 916.0,
        "step_count": 2,
        "steps": [
            {
                "type": "llm_call",
                "started_at": "2026-03-01T09:00:00.001000+00:00",
                "duration_ms": 800.5,
                "summary": "calls look_up",
                "model": "gpt-5-mini",
                "provider": "openai",
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "cost_usd": 0.0025,
            },
            {
                "type": "tool_selection",
                "started_at": "2026-03-01T09:00:00.801500+00:00",
                "duration_ms": 0.0,
                "summary": "look_up",
                "reasoning": "The customer asks about billing",
                "tool_name": "look_up",
                "tool_args": {"customer": "Ana", "months": [1, 2]},
                "call_id": "c1",
            },
        ],
    }


def test_a_trace_alone_has_no_parent_and_no_metadata_in_json() -> None:
    value = replace(TRACE, parent_run_id=None, metadata={}).to_dict()
    assert not {"parent_run_id", "metadata"} & set(value)


def test_times_are_written_in_utc() -> None:
    there = timezone(timedelta(hours=-3))
    local = replace(
        TRACE, started_at=BEGAN.astimezone(there), steps=(replace(ASKED, started_at=BEGAN.astimezone(there)),)
    )
    value: Any = local.to_dict()
    assert value["start_time"] == value["steps"][0]["started_at"] == "2026-03-01T09:00:00+00:00"


TEXTS = st.text(st.characters(), max_size=300)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
TIMES = st.integers(0, 10**9).map(lambda microseconds: BEGAN + timedelta(microseconds=microseconds))
STEPS = st.builds(
    TraceStep,
    type=st.sampled_from(["llm_call", "tool_execution", "error"]),
    started_at=TIMES,
    duration_ms=st.none() | st.floats(0, 1e6),
    summary=TEXTS,
    error=st.none() | TEXTS,
    reasoning=st.none() | TEXTS.map(lambda text: text * 9),
    tool_name=st.none() | TEXTS,
    tool_args=st.none() | st.dictionaries(TEXTS, JSON, max_size=5),
    tool_result=st.none() | TEXTS,
    prompt_tokens=st.none() | st.integers(0, 10**6),
    cost_usd=st.none() | st.floats(0, 100),
    from_checkpoint=st.booleans(),
)
TRACES = st.builds(
    AgentTrace,
    run_id=st.just(RUN),
    parent_run_id=st.none() | st.just(PARENT),
    metadata=st.dictionaries(TEXTS, JSON, max_size=5),
    steps=st.lists(STEPS, max_size=12).map(tuple),
    started_at=TIMES,
    ended_at=st.none() | TIMES,
    stop_reason=st.none() | st.just("answered"),
    total_duration_ms=st.floats(0, 1e9),
)


@pytest.mark.ledger("PYG-31")
@given(TRACES)
def test_a_trace_comes_back_from_its_json(trace: AgentTrace) -> None:
    assert AgentTrace.from_dict(json.loads(json_text(trace.to_dict()))) == trace


def test_fields_of_a_later_release_are_ignored() -> None:
    value: Any = TRACE.to_dict()
    value["colour"] = "red"
    value["steps"][0]["mood"] = "good"
    assert AgentTrace.from_dict(value) == TRACE


@pytest.mark.parametrize("form", [2, 0, "1", True, None])
def test_another_form_is_refused(form: Json) -> None:
    with pytest.raises(ValueError, match=f"the trace has the form {form!r}: this release reads the form 1"):
        AgentTrace.from_dict({**TRACE.to_dict(), "form": form})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"run_id": 7}, "its field run_id is of a wrong kind"),
        ({"steps": "none"}, "its field steps is of a wrong kind"),
        ({"steps": ["one"]}, "its field type is missing"),
        ({"steps": [{"type": "error"}]}, "its field started_at is missing"),
        ({"steps": [{**ASKED.to_dict(), "prompt_tokens": "100"}]}, "its field prompt_tokens is of a wrong kind"),
        ({"start_time": "2026-03-01T09:00:00"}, "has no time zone"),
        ({"start_time": "yesterday"}, "Invalid isoformat string"),
    ],
)
def test_a_value_that_is_no_trace_is_refused(changed: dict[str, Json], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        AgentTrace.from_dict({**TRACE.to_dict(), **changed})


# ── the file ──


@pytest.mark.ledger("TRC-17")
def test_to_json_writes_a_file_that_gives_the_trace(tmp_path: Path) -> None:
    TRACE.to_json(tmp_path / "trace.json")
    replace(TRACE, stop_reason="answered").to_json(str(tmp_path / "trace.json"))
    read = AgentTrace.from_dict(json.loads((tmp_path / "trace.json").read_bytes()))
    assert read == replace(TRACE, stop_reason="answered")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_a_value_beyond_utf8_is_written_too(tmp_path: Path) -> None:
    trace = replace(TRACE, steps=(replace(RAN, tool_result="\ud83d", tool_args={"n": 2**70}),))
    trace.to_json(tmp_path / "trace.json")
    assert AgentTrace.from_dict(json.loads((tmp_path / "trace.json").read_bytes())) == trace


@pytest.mark.ledger("TRC-17")
def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TRACE.to_json(tmp_path / "trace.json")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(TRACE, stop_reason="answered").to_json(tmp_path / "trace.json")
    assert AgentTrace.from_dict(json.loads((tmp_path / "trace.json").read_bytes())) == TRACE
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    TRACE.to_json(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").stat().st_mode & 0o777 == 0o600


# ── the timeline ──


@pytest.mark.ledger("TRC-17")
def test_the_timeline_has_a_line_for_each_step() -> None:
    earlier = TraceStep(
        type="llm_call", started_at=at(0), duration_ms=None, summary="9 characters", from_checkpoint=True
    )
    assert replace(TRACE, steps=(earlier, *TRACE.steps)).timeline() == (
        f"run {RUN}: provider_error, 916.0 ms, 5 steps\n"
        "       0.0 ms  llm_call                      ?  9 characters, from an earlier attempt\n"
        "       1.0 ms  llm_call               800.5 ms  calls look_up\n"
        "     801.5 ms  tool_selection                   look_up\n"
        "     802.0 ms  tool_execution          12.2 ms  look_up: 9 characters\n"
        "     815.0 ms  error                  100.0 ms  attempt 1, not retried, ! openai: overloaded"
    )


def test_a_timeline_has_no_characters_that_a_terminal_obeys() -> None:
    nasty = replace(RAN, summary="\x1b[2Jone\ntwo\u202e")
    lines = replace(TRACE, steps=(nasty,), stop_reason=None).timeline().split("\n")
    assert lines[0].endswith(": not ended, 916.0 ms, 1 step")
    assert lines[1].endswith("  \N{REPLACEMENT CHARACTER}[2Jone two\N{REPLACEMENT CHARACTER}")
    assert len(lines) == 2


# ── spans ──


@pytest.mark.ledger("TRC-21")
def test_a_trace_has_a_root_span_and_one_for_each_step() -> None:
    root, *children = TRACE.to_otel_spans(agent_name="billing")
    assert [span["name"] for span in (root, *children)] == [
        "invoke_agent billing",
        "chat gpt-5-mini",
        "tool_selection",
        "execute_tool look_up",
        "chat gpt-5-mini",
    ]
    assert [span["kind"] for span in (root, *children)] == ["INTERNAL", "CLIENT", "INTERNAL", "INTERNAL", "CLIENT"]
    assert root["parent_span_id"] is None
    assert {span["parent_span_id"] for span in children} == {root["span_id"]}
    assert {span["trace_id"] for span in (root, *children)} == {RUN}
    assert len({span["span_id"] for span in (root, *children)}) == 5
    assert all(re.fullmatch("[0-9a-f]{16}", span["span_id"]) for span in (root, *children))


@pytest.mark.ledger("TRC-21")
def test_spans_have_the_attributes_of_the_conventions() -> None:
    root, asked, chose, ran, failed = TRACE.to_otel_spans(agent_name="billing")
    assert root["attributes"] == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "billing",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 50,
        "askfirst.stop_reason": "provider_error",
        "error.type": "ProviderError",
    }
    assert asked["attributes"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.response.model": "gpt-5-mini",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 50,
        "askfirst.cost_usd": 0.0025,
        "askfirst.step.type": "llm_call",
    }
    assert chose["attributes"] == {
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.id": "c1",
        "askfirst.step.type": "tool_selection",
    }
    assert ran["attributes"] == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "askfirst.step.type": "tool_execution",
    }
    assert failed["attributes"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "error.type": "ProviderError",
        "askfirst.step.type": "error",
    }
    statuses = [span["status"] for span in (root, asked, chose, ran, failed)]
    assert [each["status_code"] for each in statuses] == ["ERROR", "UNSET", "UNSET", "UNSET", "ERROR"]


def test_a_tool_that_a_model_made_up_is_in_no_span() -> None:
    chose, ran = (step for step in TRACE.steps if step.tool_name is not None)
    made_up = replace(chose, tool_name="my_pin_is_4711", summary="my_pin_is_4711")
    trace = replace(TRACE, steps=(made_up, replace(ran, tool_name="(unknown)")))
    assert "4711" not in str(trace.to_otel_spans())
    assert "4711" in str(trace.to_otel_spans(content=True))


def test_a_call_that_another_model_answered_names_both() -> None:
    other = replace(ASKED, requested_model="gpt-5")
    trace = replace(TRACE, steps=(other,))
    root, span = AgentTrace.from_dict(trace.to_dict()).to_otel_spans()
    names = ("gen_ai.request.model", "gen_ai.response.model")
    assert [span["attributes"][name] for name in names] == ["gpt-5", "gpt-5-mini"]
    assert root["attributes"]["gen_ai.request.model"] == "gpt-5"


def test_spans_have_exact_times() -> None:
    root, asked, *_ = TRACE.to_otel_spans()
    assert root["name"] == "invoke_agent"
    assert root["start_time_unix_nano"] == 1_772_355_600_000_000_000
    assert root["end_time_unix_nano"] == root["start_time_unix_nano"] + 916_000_000
    assert asked["start_time_unix_nano"] == root["start_time_unix_nano"] + 1_000_000
    assert asked["end_time_unix_nano"] == asked["start_time_unix_nano"] + 800_500_000


def test_a_run_without_an_end_lasts_as_long_as_its_steps() -> None:
    root, *_ = replace(TRACE, ended_at=None).to_otel_spans()
    assert root["end_time_unix_nano"] == root["start_time_unix_nano"] + 915_000_000
    empty, *_ = replace(TRACE, ended_at=None, steps=()).to_otel_spans()
    assert empty["end_time_unix_nano"] == empty["start_time_unix_nano"]


def test_a_step_of_an_earlier_attempt_has_a_span_of_no_length() -> None:
    earlier = replace(ASKED, duration_ms=None, from_checkpoint=True)
    _, span = replace(TRACE, steps=(earlier,)).to_otel_spans()
    assert span["attributes"]["askfirst.from_checkpoint"] is True
    assert span["start_time_unix_nano"] == span["end_time_unix_nano"]


def test_span_ids_follow_from_the_run_and_the_number() -> None:
    again = replace(TRACE, steps=TRACE.steps[:2]).to_otel_spans()
    assert [span["span_id"] for span in again] == [span["span_id"] for span in TRACE.to_otel_spans()[:3]]
    other = replace(TRACE, run_id=PARENT).to_otel_spans()
    assert not {span["span_id"] for span in other} & {span["span_id"] for span in again}


@pytest.mark.ledger("TRC-19")
def test_a_nested_run_links_to_the_root_of_its_parent() -> None:
    parent, *_ = replace(TRACE, run_id=PARENT, parent_run_id=None).to_otel_spans()
    root, child, *_ = TRACE.to_otel_spans()
    assert root["links"] == [{"trace_id": PARENT, "span_id": parent["span_id"]}]
    assert parent["links"] == child["links"] == []


@pytest.mark.parametrize("run_id", ["0" * 32, "run-1", RUN.upper(), "\ud83d"])
def test_a_run_id_that_is_no_trace_id_gives_one(run_id: str) -> None:
    root, *_ = replace(TRACE, run_id=run_id).to_otel_spans()
    assert re.fullmatch("[0-9a-f]{32}", root["trace_id"])
    assert root["trace_id"] != run_id


SECRETS = ["Ana", "owes", "billing", "u123", "overloaded"]


def test_spans_have_no_content_unless_asked() -> None:
    without, with_content = json.dumps(TRACE.to_otel_spans()), json.dumps(TRACE.to_otel_spans(content=True))
    assert [secret for secret in SECRETS if secret in without] == []
    assert [secret for secret in SECRETS if secret not in with_content] == []
    root, _, _, ran, failed = TRACE.to_otel_spans(content=True)
    assert ran["attributes"]["gen_ai.tool.call.arguments"] == '{"customer":"Ana","months":[1,2]}'
    assert ran["attributes"]["gen_ai.tool.call.result"] == "Ana owes 5"
    assert failed["status"]["description"] == "openai: overloaded"
    assert root["attributes"]["askfirst.metadata.user_id"] == "u123"


# ── the bounded form ──


def size(trace: AgentTrace) -> int:
    return len(json_text(trace.to_dict()).encode())


def of_steps(count: int, step: TraceStep = RAN) -> AgentTrace:
    steps = [replace(step, call_id=f"c{number}") for number in range(count)]
    return replace(TRACE, steps=tuple(steps))


def test_a_trace_that_fits_stays_whole() -> None:
    assert bounded(TRACE) is TRACE


def test_a_long_trace_keeps_its_ends_and_counts_the_rest() -> None:
    trace = of_steps(300)
    short = bounded(trace)
    assert MOST_BYTES * 0.9 < size(short) <= MOST_BYTES
    (mark,) = short.filter(type="left_out")
    place = short.steps.index(mark)
    head, tail = short.steps[:place], short.steps[place + 1 :]
    assert abs(len(head) - len(tail)) <= 1
    assert head == trace.steps[: len(head)]
    assert tail == trace.steps[-len(tail) :]
    assert mark.left_out == 300 - len(head) - len(tail)
    assert mark.summary == f"{mark.left_out} steps"


def test_texts_are_cut_before_steps_are_left_out() -> None:
    long = "x" * 5000
    wordy = replace(RAN, summary=long, error=long, reasoning=long, tool_result=long, tool_args={"a": long, "b": [long]})
    short = bounded(of_steps(8, wordy))
    assert len(short) == 8
    step = short.steps[0]
    assert (len(step.summary), len(step.tool_result or ""), len(step.error or "")) == (200, 200, 500)
    assert step.tool_args == {"a": "x" * 99 + "…", "b": "… (5004 bytes of JSON)"}
    assert step.call_id == "c0"


def test_many_arguments_are_cut_to_the_first_ones() -> None:
    many = replace(RAN, tool_args={f"key{number}": "x" * 50 for number in range(100)})
    (step, *_) = bounded(of_steps(20, many)).steps
    assert step.tool_args is not None
    assert len(json_text(dict(step.tool_args)).encode()) <= 500
    assert step.tool_args["…"] == f"{101 - len(step.tool_args)} more"


def test_a_bounded_trace_may_be_bounded_again() -> None:
    once = bounded(of_steps(300))
    twice = bounded(replace(once, steps=(*once.steps, ASKED, CHOSE)), LEAST_BYTES)
    assert size(twice) <= LEAST_BYTES
    (mark,) = twice.filter(type="left_out")
    assert mark.left_out == 302 - (len(twice) - 1)
    assert twice.steps[-1] == CHOSE


@given(TRACES, st.integers(LEAST_BYTES, 8000))
def test_a_bounded_trace_has_at_most_so_many_bytes(trace: AgentTrace, most: int) -> None:
    short = bounded(trace, most)
    assert size(short) <= most
    assert sum(step.left_out or 1 for step in short) == len(trace)
    assert AgentTrace.from_dict(json.loads(json_text(short.to_dict()))) == short


def test_too_small_a_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="2048 bytes or more, not 2047"):
        bounded(TRACE, 2047)


# ── The export of spans: the provider of an application, sampling, and refusals at start ──


URL = "http://127.0.0.1:9/v1/traces"


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    yield from provided(monkeypatch, TracerProvider())


def provided(monkeypatch: pytest.MonkeyPatch, provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def ids(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


@pytest.mark.ledger("OBS-36")
async def test_spans_go_to_the_provider_of_the_application(application: InMemorySpanExporter) -> None:
    others = trace.get_tracer_provider().get_tracer("theirs")
    wanted = TRACE.to_otel_spans(agent_name="billing", content=True)
    async with SpanExport(URL, service_name="Shop") as export:
        with others.start_as_current_span("theirs"):
            for span in wanted:
                export.emit(span)
    *ours, theirs = application.get_finished_spans()
    assert [ids(span) for span in ours] == [(span["trace_id"], span["span_id"]) for span in wanted]
    assert ours[0].parent is None
    assert {f"{span.parent.span_id:016x}" for span in ours if span.parent is not None} == {wanted[0]["span_id"]}
    assert [dict(span.attributes or {}) for span in ours] == [span["attributes"] for span in wanted]
    assert [span.start_time for span in ours] == [span["start_time_unix_nano"] for span in wanted]
    assert [span.end_time for span in ours] == [span["end_time_unix_nano"] for span in wanted]
    assert [span.status.is_ok for span in ours] == [False, True, True, True, False]
    assert ids(theirs) not in [ids(span) for span in ours]


async def test_a_provider_of_the_application_outlives_the_gateway(application: InMemorySpanExporter) -> None:
    async with SpanExport(None, service_name="Shop"):
        pass
    trace.get_tracer_provider().get_tracer("theirs").start_span("later").end()
    assert [span.name for span in application.get_finished_spans()] == ["later"]


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
async def test_every_process_samples_a_run_alike(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """The root and the other spans may come from different processes."""
    for exporter in provided(monkeypatch, TracerProvider(sampler=ParentBased(TraceIdRatioBased(rate)))):
        root, child, *_ = TRACE.to_otel_spans()
        taken: dict[str, int] = {}
        for number in range(1, 21):
            trace_id = f"{number:032x}"[::-1]
            for span in (root, child):
                async with SpanExport(None, service_name="Shop") as export:
                    export.emit({**span, "trace_id": trace_id})
        for finished in exporter.get_finished_spans():
            trace_id, _ = ids(finished)
            taken[trace_id] = taken.get(trace_id, 0) + 1
        assert set(taken.values()) <= {2}
        assert len(taken) == (0 if rate == 0 else 20) or rate == 0.5


async def test_a_processor_that_raises_ends_no_turn(
    application: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("CANARY")

    monkeypatch.setattr(application, "export", broken)
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    monkeypatch.setattr(provider.sampler, "should_sample", broken)
    caplog.set_level(logging.WARNING, "askfirst.observe")
    async with SpanExport(None, service_name="Shop") as export:
        for span in TRACE.to_otel_spans():
            export.emit(span)
    assert "CANARY" not in caplog.text


# ── at start ──


def test_no_export_is_made_without_collector_and_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace")
    assert span_export(None, headers="", service_name="Shop") is None


def test_a_missing_extra_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gateway.observe.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingSetting, match=r"OTEL_EXPORTER_OTLP_ENDPOINT.*pip install 'askfirst\[otel\]'"):
        span_export(URL, headers="", service_name="Shop")


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_a_protocol_that_is_not_spoken_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "grpc")
    with pytest.raises(MissingSetting, match=rf"{variable}.*http/protobuf"):
        span_export(URL, headers="", service_name="Shop")
    monkeypatch.setenv(variable, "http/protobuf")
    assert span_export(URL, headers="", service_name="Shop") is not None
