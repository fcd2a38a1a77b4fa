"""The export of spans: the provider of an application, sampling, and what is refused at start."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from channels import MissingSetting
from gateway.observe.otel import SpanExport
from gateway.observe.spans import span_export
from tests.observe.test_trace import TRACE

URL = "http://127.0.0.1:9/v1/traces"


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An application that has set a tracer provider."""
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


def test_without_a_collector_and_a_provider_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
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
