"""The export of spans through the OpenTelemetry SDK. Needs the extra ``otel``.

Spans go to the tracer provider of the embedding application. Without a provider, spans go to a collector by OTLP over
HTTP, in batches and from a thread of the SDK. The SDK's own environment variables configure the export
(OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_BSP_MAX_QUEUE_SIZE, ...). A full queue drops spans, so an unreachable
collector causes no delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

from channels import MissingSetting

log = logging.getLogger("askfirst.observe")

FLUSH_SECONDS = 5.0
"""The longest wait of a stop for the sending of spans."""
_SCOPE: Final = "askfirst"
_PROTOCOL: Final = "http/protobuf"
_LONGEST_HEADER = 512
"""The most characters of an accepted traceparent. Version 00 has 55; a later version may have more."""
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)


class SpanExport:
    """The export of a gateway's spans. ``async with`` opens the export; before and after, spans are dropped.

    `url`: the address of the collector. None: spans go to the application's provider alone.
    """

    def __init__(self, url: str | None, *, headers: str = "", service_name: str) -> None:
        """Raises MissingSetting for an unsupported protocol."""
        for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if url is not None and os.environ.get(variable, "").strip() not in ("", _PROTOCOL):
                raise MissingSetting(variable, f"spans are sent by {_PROTOCOL} alone: write that, or leave it out")
        self._url, self._headers, self._service_name = url, headers, service_name
        self._own: tuple[TracerProvider, SpanExporter] | None = None
        self._provider: TracerProvider | None = None
        self._tracer: trace.Tracer = trace.NoOpTracer()

    async def __aenter__(self) -> Self:
        found = trace.get_tracer_provider()
        if isinstance(found, TracerProvider):
            self._provider = found
            # A tracer keeps the generator that its provider has when it is made.
            others = found.id_generator
            found.id_generator = _GivenIds(others)  # type: ignore[assignment]  # the SDK infers its default's class
            try:
                self._tracer = found.get_tracer(_SCOPE)
            finally:
                found.id_generator = others
        elif self._url is not None:
            self._own = await asyncio.to_thread(self._open, self._url)
            self._provider, _ = self._own
            self._tracer = self._provider.get_tracer(_SCOPE)
        return self

    def _open(self, url: str) -> tuple[TracerProvider, SpanExporter]:
        """Return a provider of the gateway, and the exporter to the collector. Waits for threads of the SDK."""
        exporter = _LoggedOnce(OTLPSpanExporter(url, headers=parse_env_headers(self._headers, liberal=True)))
        provider = TracerProvider(
            resource=_resource(self._service_name), id_generator=_GivenIds(RandomIdGenerator()), shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return provider, exporter

    async def __aexit__(self, *error: object) -> None:
        own, self._own, self._provider = self._own, None, None
        if own is not None:
            await _shut_down(*own)

    def emit(self, span: Mapping[str, Any]) -> None:
        """Export a span, in the form of `AgentTrace.to_otel_spans`. Does not wait and does not raise."""
        if self._provider is None:
            return
        try:
            self._emit(span, self._provider)
        except Exception as error:  # noqa: BLE001 - a sampler or processor of the application must not end a turn
            log.warning("a span is not exported: %s", type(error).__name__)

    def _emit(self, span: Mapping[str, Any], provider: TracerProvider) -> None:
        trace_id, parent = int(span["trace_id"], 16), span["parent_span_id"]
        name, kind, attributes = span["name"], SpanKind[span["kind"]], span["attributes"]
        links = _links(span["links"])
        context = Context()  # not that of the application, whose span may be current here
        if parent is not None:
            decision = provider.sampler.should_sample(context, trace_id, name, kind, attributes, links).decision
            flags = _SAMPLED if decision is Decision.RECORD_AND_SAMPLE else _NOT_SAMPLED
            above = SpanContext(trace_id, int(parent, 16), is_remote=False, trace_flags=flags)
            context = trace.set_span_in_context(NonRecordingSpan(above), context)
        token = _given.set((trace_id, int(span["span_id"], 16)))
        try:
            made = self._tracer.start_span(name, context, kind, attributes, links, span["start_time_unix_nano"])
        finally:
            _given.reset(token)
        status = span["status"]
        if status["status_code"] == "ERROR":
            made.set_status(Status(StatusCode.ERROR, status.get("description")))
        made.end(span["end_time_unix_nano"])


_given: ContextVar[tuple[int, int] | None] = ContextVar("askfirst_span_ids", default=None)
"""The trace id and the span id of the starting span. Shared by all exports: a provider creates a tracer once."""


class _GivenIds(IdGenerator):
    """Gives a span of the gateway the prepared ids, and any other span the ids of another generator."""

    def __init__(self, others: IdGenerator) -> None:
        self._others = others

    def generate_trace_id(self) -> int:
        given = _given.get()
        return self._others.generate_trace_id() if given is None else given[0]

    def generate_span_id(self) -> int:
        given = _given.get()
        return self._others.generate_span_id() if given is None else given[1]


class _LoggedOnce(SpanExporter):
    """An exporter with one log line for the first failure, and one for the next success."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter, self._failing = exporter, False
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_is_no_failure)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            log.warning("the OpenTelemetry collector takes no spans: they are dropped until it does (logged once)")
        elif self._failing and not failed:
            log.info("the OpenTelemetry collector takes spans again")
        self._failing = failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _is_no_failure(record: logging.LogRecord) -> bool:
    """Return False for the library's own warnings, logged at each failed call."""
    return record.levelno < logging.WARNING


def _resource(service_name: str) -> Resource:
    """Return the resource described by the environment. `service_name` is the fallback for a missing service name."""
    found = Resource.create()
    named = not str(found.attributes[SERVICE_NAME]).startswith("unknown_service")
    return found if named else found.merge(Resource({SERVICE_NAME: service_name}))


def _links(links: Sequence[Mapping[str, str]]) -> list[Link]:
    """Return the links of a span, without links to unsampled traces of callers: no collector has these."""
    contexts = []
    for link in links:
        if "traceparent" in link:
            caller = _caller(link["traceparent"])
            contexts += [caller] if caller.is_valid and caller.trace_flags.sampled else []
        else:
            contexts.append(
                SpanContext(int(link["trace_id"], 16), int(link["span_id"], 16), is_remote=True, trace_flags=_SAMPLED)
            )
    return [Link(context) for context in contexts]


def _caller(traceparent: str) -> SpanContext:
    """Return the span of the header, else the current span of the application. The span may be invalid."""
    header = traceparent if len(traceparent) <= _LONGEST_HEADER else ""
    context = TraceContextTextMapPropagator().extract({"traceparent": header}, Context())
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else trace.get_current_span().get_span_context()


async def _shut_down(provider: TracerProvider, exporter: SpanExporter) -> None:
    """Send the waiting spans, for FLUSH_SECONDS at most."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def flush() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done.set)

    # A daemon, not a thread of the loop's pool: the end of the process would wait for that.
    threading.Thread(target=flush, name="askfirst-spans", daemon=True).start()
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            await done.wait()
    except TimeoutError:
        log.warning("the OpenTelemetry collector did not take the last spans within %g s", FLUSH_SECONDS)
        exporter.shutdown()
