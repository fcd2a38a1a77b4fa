"""The spans of a gateway: from the receipt of a message to the delivery, in one trace for each run.

The trace id is the run id, and the id of the root span follows from the run id. So each process with a step of a run
adds spans to the same trace, also after a take-over:

- `receive`: the root, emitted by the process that stored the message. If the gateway or the bot's own code began the
  run, the root is the turn.
- `invoke_agent`: a span for each attempt at the turn, with the recorded steps as children. The span is made at the end
  of the attempt. An attempt that dies with the process leaves no span: the next attempt has the recorded steps.
- `deliver`: a span for each call to the platform.
- An action has a trace of its own, from the question to the end. The root links to the asking run, and the run of a
  press links to the root.
"""

from __future__ import annotations

import secrets
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

from channels import MissingSetting
from gateway.observe import events, genai
from gateway.observe.caller import TRACEPARENT
from gateway.observe.genai import gateway_span, root_link
from gateway.observe.reader import EventReader
from gateway.observe.recorder import TraceRecorder
from gateway.observe.results import StopReason
from gateway.observe.runs import action_event_id, run_id_of
from gateway.tools.pending_action import PendingAction, json_text

if TYPE_CHECKING:
    from gateway.observe.otel import SpanExport

_MOST_RUNS = 1_000
"""The number of runs with steps in memory. A turn taken over by another process never ends here."""
_STOP_REASONS: Final = frozenset(get_args(StopReason))


def span_export(url: str | None, *, headers: str, service_name: str) -> SpanExport | None:
    """Return the export of spans to a collector, or to the tracer provider of the application.

    Returns None without a URL, if the application does not use the OpenTelemetry SDK. Raises MissingSetting if the
    extra is not installed, and for an unsupported protocol.
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
    """An attempt at a run, not ended yet."""

    trace: TraceRecorder
    conversation: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    links: Sequence[Mapping[str, str]] = ()
    below_root: bool = False
    """The root of the trace is the receipt of the message."""


class SpanReader(EventReader):
    """A reader of events that makes spans and passes each to `emit`.

    `content`: include texts, arguments and results. `pseudonym` replaces the people in an id.
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
        self.kinds = frozenset({*self._methods, *TraceRecorder.kinds})
        self._emit, self._agent_name, self._content = emit, agent_name, content
        self._clock, self._pseudonym, self._new_id = clock, pseudonym, new_id
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def read(self, event: events.ObservedEvent) -> None:
        """Record a step of a run, or make the span of an event."""
        kind = type(event)
        if isinstance(event, events.RunEvent) and kind in TraceRecorder.kinds:
            run = self._runs.get(event.run_id)
            if run is not None:
                run.trace.read(event)
        if kind in self._methods:
            super().read(event)

    # ── receipt ──

    def message_received(self, event: events.MessageReceived) -> None:
        links = [{"traceparent": TRACEPARENT.get()}]
        run_id = run_id_of(event.conversation, event.event_id)
        attributes = self._of_message("inbound", event)
        self._moment(run_id, f"{genai.RECEIVE} {event.address.channel}", "CONSUMER", attributes, links=links, root=True)

    def duplicate_dropped(self, event: events.DuplicateDropped) -> None:
        run_id = run_id_of(event.conversation, event.event_id)
        self._moment(run_id, "duplicate", "INTERNAL", self._of_message("dedup", event))

    def _of_message(self, step: str, event: events.MessageReceived | events.DuplicateDropped) -> dict[str, Any]:
        return {
            genai.STEP_TYPE: step,
            genai.CHANNEL: event.address.channel,
            genai.EVENT: self._pseudonym(event.event_id),
            genai.CONVERSATION: self._pseudonym(event.conversation),
        }

    # ── turns and other runs ──

    def turn_start(self, event: events.TurnStart) -> None:
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

    def run_start(self, event: events.RunStart) -> None:
        """Begin a run outside of a turn."""
        if event.run_id not in self._runs:
            self._begin(event.run_id, parent_run_id=event.parent_run_id)

    def _begin(self, run_id: str, *, parent_run_id: str | None = None, **about: Any) -> None:
        trace = TraceRecorder(run_id, clock=self._clock, parent_run_id=parent_run_id)
        self._runs[run_id] = _Run(trace, **about)
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)

    def turn_end(self, event: events.TurnEnd) -> None:
        self._end(event.run_id, event.stop_reason)

    def turn_failed(self, event: events.TurnFailed) -> None:
        self._end(event.run_id, "error", failed=event.error)

    def run_end(self, event: events.RunEnd) -> None:
        if (run := self._runs.get(event.run_id)) is not None and not run.conversation:
            self._end(event.run_id, event.result.stop_reason)

    def error(self, event: events.RunError) -> None:
        if (run := self._runs.get(event.run_id)) is not None and not run.conversation:
            self._end(event.run_id, "error")

    def lease_lost(self, event: events.LeaseLost) -> None:
        """Forget the turn of a conversation: another process continues the turn."""
        if event.kind == "turn":
            for run_id in [each for each, run in self._runs.items() if run.conversation == event.conversation]:
                del self._runs[run_id]

    def event_settled(self, event: events.EventSettled) -> None:
        """Make the span of a decision. A turn settled without a call of the model ends here too."""
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
        """Make the spans of an attempt and of the steps."""
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

    def pending_decided(self, event: events.PendingDecided) -> None:
        action = event.action
        attributes = {**self._of_action("pending_decided", action), genai.OUTCOME: event.intent}
        self._moment(_run_id(action), genai.DECIDE, "INTERNAL", attributes)

    def effect_end(self, event: events.EffectEnd) -> None:
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

    def pending_resolved(self, event: events.PendingResolved) -> None:
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

    def message_sent(self, event: events.MessageSent) -> None:
        ended = self._clock()
        self._deliver(event, ended, event.address.channel, event.duration_ms or 0.0, call=event.call)

    def delivery_retried(self, event: events.DeliveryRetried) -> None:
        self._deliver(event, self._clock(), event.channel, event.duration_ms, call=event.call, failed="retried")

    def delivery_failed(self, event: events.DeliveryFailed) -> None:
        failed = None if event.suppressed else "undeliverable"
        self._deliver(event, self._clock(), event.address.channel, 0.0, failed=failed)

    def _deliver(
        self,
        event: events.MessageSent | events.DeliveryRetried | events.DeliveryFailed,
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
        """Make a span of zero length at the current time."""
        now, own_id = self._clock(), None if root else self._new_id()
        self._emit(
            gateway_span(
                run_id, name, kind=kind, own_id=own_id, began=now, ended=now, attributes=attributes, links=links
            )
        )


def _run_id(action: PendingAction) -> str:
    return _run_of_action(action.conversation, action.pending_action_id)


def _run_of_action(conversation: str, action_id: str) -> str:
    """Return the run id for the end and the receipt of an action."""
    return run_id_of(conversation, action_event_id(action_id))
