"""An OpenTelemetry collector as a real HTTP server: spans come by OTLP, and a test reads them.

async with FakeCollector() as collector:            # collector.url
    ...
    spans = await collector.wait_for(lambda: collector.named("deliver telegram"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.fakes.waiting import listen

T = TypeVar("T")


@dataclass(frozen=True)
class SpanTaken:
    """A received span. Ids are hex digits; times are nanoseconds since 1970."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent: str
    began: int
    ended: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    """Trace id and span id."""
    failed: bool
    said: str
    """The text of the status."""
    resource: dict[str, Any]


class FakeCollector:
    """Takes spans. `statuses`: the answers to the next calls; `hold`: every call waits for this event."""

    def __init__(self) -> None:
        self.spans: list[SpanTaken] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []
        self.hold: asyncio.Event | None = None
        self.calls = 0
        self.url = ""
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner, self.url = await listen(app)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.hold is not None:
            self.hold.set()
        await self._runner.cleanup()

    def named(self, name: str) -> list[SpanTaken]:
        return [span for span in self.spans if span.name == name]

    def in_trace(self, trace_id: str) -> list[SpanTaken]:
        return sorted([span for span in self.spans if span.trace_id == trace_id], key=lambda span: span.began)

    async def wait_for(self, condition: Callable[[], T]) -> T:
        async with asyncio.timeout(20):
            while not (found := condition()):
                self.changed.clear()
                await self.changed.wait()
        return found

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.calls += 1
        self.changed.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return web.Response(status=status)
        self.headers.append(dict(request.headers))
        taken = ExportTraceServiceRequest.FromString(body)
        for group in taken.resource_spans:
            resource = _values(group.resource.attributes)
            self.spans += [_span(span, resource) for scope in group.scope_spans for span in scope.spans]
        self.changed.set()
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")


def _span(span: Any, resource: dict[str, Any]) -> SpanTaken:
    return SpanTaken(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        failed=span.status.code == 2,
        said=span.status.message,
        resource=resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
