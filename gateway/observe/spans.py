"""The spans of a gateway: from the receipt of a message to its delivery, in one trace for each run.

The trace id is the run id, and the id of a trace's root span follows from it. So each process that takes a step of a
run adds its spans to the same trace, also after a take-over:

- the root `receive`, told by the process that stored the message. The root of a run that the gateway or the bot's own
  code began is its turn.
- `invoke_agent`, one for each attempt at the turn, with the steps of its trace below it. It is made when the attempt
  ends, so an attempt that died with its process leaves none: the next one has its recorded steps.
- `deliver`, one for each call to the platform.
- An action has a trace of its own, from the question to its end. Its root links to the run that asked, and the run of a
  press links to it.
"""

from __future__ import annotations

import secrets
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

from channels import MissingSetting
from gateway.observe import genai
from gateway.observe.caller import TRACEPARENT
from gateway.observe.events import (
    DeliveryFailed,
    DeliveryRetried,
    DuplicateDropped,
    EffectEnd,
    EventSettled,
    LeaseLost,
    MessageReceived,
    MessageSent,
    ObservedEvent,
    PendingDecided,
    PendingResolved,
    RunEnd,
    RunError,
    RunEvent,
    RunStart,
    TurnEnd,
    TurnFailed,
    TurnStart,
)
from gateway.observe.genai import gateway_span, root_link
from gateway.observe.recorder import TraceRecorder
from gateway.observe.results import StopReason
from gateway.observe.runs import action_event_id, run_id_of
from gateway.tools.pending_action import PendingAction, json_text

if TYPE_CHECKING:
    from gateway.observe.otel import SpanExport

__all__ = ["SpanReader", "span_export"]

_MOST_RUNS = 1_000
"""The runs of which steps are kept. A turn that another process takes over is never ended here."""
_STOP_REASONS: Final = frozenset(get_args(StopReason))


def span_export(url: str | None, *, headers: str, service_name: str) -> SpanExport | None:
    """Return the export of spans to a collector, or to the tracer provider that the application may have set.

    None without an URL, if the application does not use the OpenTelemetry SDK. Raises MissingSetting when the extra is
    not installed, and for a protocol that this release does not speak.
    """
    if url is None and "opentelemetry.sdk.trace" not in sys.modules:
        return None
    try:
        from gateway.observe.otel import SpanExport
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        if url is None:  # the application has the SDK, but not the exporter
            return None
        mend = "it needs the extra otel: pip install 'askfirst[otel]', or unset it"
        raise MissingSetting("OTEL_EXPORTER_OTLP_ENDPOINT", mend) from None
    return SpanExport(url, headers=headers, service_name=service_name)


@dataclass(slots=True)
class _Run:
    """An attempt at a run that has not ended."""

    trace: TraceRecorder
    conversation: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    links: Sequence[Mapping[str, str]] = ()
    below_root: bool = False
    """The root of the trace is the receipt of the message."""


class SpanReader:
    """A reader that makes spans of events, and gives each to `emit`.

    `content`: they also have texts, arguments and results. `pseudonym` replaces the people in an id.
    """

    def __init__(
        self,
        emit: Callable[[Mapping[str, Any]], None],
        *,
        agent_name: str,
        content: bool,
        clock: Callable[[], datetime],
        pseudonym: Callable[[str], str],
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.kinds: Collection[type[ObservedEvent]] = frozenset({*_STATIONS, *TraceRecorder.kinds})
        self._emit, self._agent_name, self._content = emit, agent_name, content
        self._clock, self._pseudonym, self._new_id = clock, pseudonym, new_id
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def read(self, event: ObservedEvent) -> None:
        """Record a step of a run, or make the span of an event."""
        if isinstance(event, RunEvent) and type(event) in TraceRecorder.kinds:
            run = self._runs.get(event.run_id)
            if run is not None:
                run.trace.read(event)
        if (station := _STATIONS.get(type(event))) is not None:
            station(self, event)

    # ── receipt ──

    def received(self, event: MessageReceived) -> None:
        links = [{"traceparent": TRACEPARENT.get()}]
        run_id = run_id_of(event.conversation, event.event_id)
        attributes = self._of_message("inbound", event)
        self._moment(run_id, f"{genai.RECEIVE} {event.address.channel}", "CONSUMER", attributes, links=links, root=True)

    def dropped(self, event: DuplicateDropped) -> None:
        run_id = run_id_of(event.conversation, event.event_id)
        self._moment(run_id, "duplicate", "INTERNAL", self._of_message("dedup", event))

    def _of_message(self, step: str, event: MessageReceived | DuplicateDropped) -> dict[str, Any]:
        return {
            genai.STEP_TYPE: step,
            genai.CHANNEL: event.address.channel,
            genai.EVENT: self._pseudonym(event.event_id),
            genai.CONVERSATION: self._pseudonym(event.conversation),
        }

    # ── turns and other runs ──

    def turn_began(self, event: TurnStart) -> None:
        others = [run_id_of(event.conversation, each) for each in event.event_ids if each != event.cause]
        self._begin(
            event.run_id,
            conversation=event.conversation,
            attributes={
                genai.CONVERSATION: self._pseudonym(event.conversation),
                genai.EVENT: self._pseudonym(event.cause),
                genai.ATTEMPT: event.attempt,
            },
            links=[root_link(each) for each in others],
            below_root=event.received,
        )

    def run_began(self, event: RunStart) -> None:
        """Begin a run that is no turn."""
        if event.run_id not in self._runs:
            self._begin(event.run_id, parent_run_id=event.parent_run_id)

    def _begin(self, run_id: str, *, parent_run_id: str | None = None, **about: Any) -> None:
        trace = TraceRecorder(run_id, clock=self._clock, parent_run_id=parent_run_id)
        self._runs[run_id] = _Run(trace, **about)
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)

    def turn_ended(self, event: TurnEnd) -> None:
        self._end(event.run_id, event.stop_reason)

    def turn_failed(self, event: TurnFailed) -> None:
        self._end(event.run_id, "error", failed=event.error)

    def run_ended(self, event: RunEnd) -> None:
        if (run := self._runs.get(event.run_id)) is not None and not run.conversation:
            self._end(event.run_id, event.result.stop_reason)

    def run_failed(self, event: RunError) -> None:
        if (run := self._runs.get(event.run_id)) is not None and not run.conversation:
            self._end(event.run_id, "error")

    def lease_lost(self, event: LeaseLost) -> None:
        """Forget the turn of a conversation: another process goes on with it."""
        if event.kind == "turn":
            for run_id in [each for each, run in self._runs.items() if run.conversation == event.conversation]:
                del self._runs[run_id]

    def settled(self, event: EventSettled) -> None:
        """Make the span of a decision. A turn that its events ended without a call of the model ends here too."""
        run = self._runs.get(event.run_id)
        links = [root_link(_run_of_action(event.conversation, each)) for each in event.actions]
        if run is not None:
            run.links = [*run.links, *links]
            if event.how not in _STOP_REASONS:
                self._end(event.run_id, event.how)
            return
        attributes = {
            genai.STEP_TYPE: "pending_resolved" if event.actions else "settled",
            genai.OUTCOME: event.how,
            genai.CONVERSATION: self._pseudonym(event.conversation),
        }
        root = not event.received
        self._moment(event.run_id, genai.DECIDE, "INTERNAL", attributes, links=links, root=root)

    def _end(self, run_id: str, stop_reason: str, *, failed: BaseException | None = None) -> None:
        """Make the spans of an attempt and its steps."""
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        trace = run.trace.trace(stop_reason)
        root, *steps = trace.to_otel_spans(content=self._content, agent_name=self._agent_name)
        if run.below_root or failed is not None:  # a later attempt may be the root
            root["parent_span_id"], root["span_id"] = root["span_id"], self._new_id()
        if failed is not None:
            root["attributes"][genai.ERROR_TYPE] = type(failed).__name__
        root["attributes"] |= run.attributes
        root["links"] += run.links
        self._emit(root)
        for step in steps:
            step["span_id"], step["parent_span_id"] = self._new_id(), root["span_id"]
            self._emit(step)

    # ── actions ──

    def decided(self, event: PendingDecided) -> None:
        action = event.action
        attributes = {**self._of_action("pending_decided", action), genai.OUTCOME: event.intent}
        self._moment(_run_id(action), genai.DECIDE, "INTERNAL", attributes)

    def effect_ended(self, event: EffectEnd) -> None:
        action, ended = event.action, self._clock()
        error = "_OTHER" if event.error is None else type(event.error).__name__
        self._emit(
            gateway_span(
                _run_id(action),
                f"{genai.EXECUTE_TOOL} {action.kind}",
                own_id=self._new_id(),
                began=ended - timedelta(milliseconds=event.duration_ms),
                ended=ended,
                attributes={
                    **self._of_action("tool_execution", action),
                    genai.OPERATION: genai.EXECUTE_TOOL,
                    genai.TOOL_TYPE: "function",
                    genai.OUTCOME: event.state,
                },
                error_type=None if event.state == "done" else error,
            )
        )

    def resolved(self, event: PendingResolved) -> None:
        action = event.action
        self._emit(
            gateway_span(
                _run_id(action),
                f"{genai.PENDING_ACTION} {action.kind}",
                began=action.requested_at,
                ended=self._clock(),
                attributes={
                    **self._of_action("pending_resolved", action),
                    genai.OUTCOME: event.status,
                    genai.CONVERSATION: self._pseudonym(action.conversation),
                },
                links=[root_link(action.run_id)] if action.run_id else [],
                error_type=event.status if event.status in ("failed", "unknown") else None,
            )
        )

    def _of_action(self, step: str, action: PendingAction) -> dict[str, Any]:
        about = {genai.STEP_TYPE: step, genai.ACTION: action.pending_action_id, genai.TOOL_NAME: action.kind}
        if self._content:
            about[genai.TOOL_ARGUMENTS] = json_text(dict(action.args))
        return about

    # ── delivery ──

    def sent(self, event: MessageSent) -> None:
        ended = self._clock()
        self._deliver(event, ended, event.address.channel, event.duration_ms or 0.0, call=event.call)

    def retried(self, event: DeliveryRetried) -> None:
        self._deliver(event, self._clock(), event.channel, event.duration_ms, call=event.call, failed="retried")

    def undelivered(self, event: DeliveryFailed) -> None:
        failed = None if event.suppressed else "undeliverable"
        self._deliver(event, self._clock(), event.address.channel, 0.0, failed=failed)

    def _deliver(
        self,
        event: MessageSent | DeliveryRetried | DeliveryFailed,
        ended: datetime,
        channel: str,
        duration_ms: float,
        *,
        call: str | None = None,
        failed: str | None = None,
    ) -> None:
        self._emit(
            gateway_span(
                event.run_id,
                f"{genai.DELIVER} {channel}",
                kind="PRODUCER",
                own_id=self._new_id(),
                began=ended - timedelta(milliseconds=duration_ms),
                ended=ended,
                attributes={
                    genai.STEP_TYPE: "delivery",
                    genai.CHANNEL: channel,
                    genai.PART: event.part_id or None,
                    genai.DELIVERY_CALL: call,
                    genai.CONVERSATION: self._pseudonym(event.conversation),
                },
                error_type=failed,
            )
        )

    def _moment(
        self,
        run_id: str,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        *,
        links: Sequence[Mapping[str, str]] = (),
        root: bool = False,
    ) -> None:
        """Make a span of no length, which is now."""
        now, own_id = self._clock(), None if root else self._new_id()
        self._emit(
            gateway_span(
                run_id, name, kind=kind, own_id=own_id, began=now, ended=now, attributes=attributes, links=links
            )
        )


def _run_id(action: PendingAction) -> str:
    return _run_of_action(action.conversation, action.pending_action_id)


def _run_of_action(conversation: str, action_id: str) -> str:
    """Return the id under which the end of an action is told, and which its receipt has."""
    return run_id_of(conversation, action_event_id(action_id))


_STATIONS: Final[Mapping[type[ObservedEvent], Callable[[SpanReader, Any], None]]] = {
    MessageReceived: SpanReader.received,
    DuplicateDropped: SpanReader.dropped,
    TurnStart: SpanReader.turn_began,
    TurnEnd: SpanReader.turn_ended,
    TurnFailed: SpanReader.turn_failed,
    RunStart: SpanReader.run_began,
    RunEnd: SpanReader.run_ended,
    RunError: SpanReader.run_failed,
    LeaseLost: SpanReader.lease_lost,
    EventSettled: SpanReader.settled,
    PendingDecided: SpanReader.decided,
    EffectEnd: SpanReader.effect_ended,
    PendingResolved: SpanReader.resolved,
    MessageSent: SpanReader.sent,
    DeliveryRetried: SpanReader.retried,
    DeliveryFailed: SpanReader.undelivered,
}
