"""The recorder: makes the trace of a run from the events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from channels import Json
from gateway.logs import describe_error
from gateway.observe import events
from gateway.observe.reader import EventReader
from gateway.observe.results import StoredTrace
from gateway.observe.trace import AgentTrace, TraceStep
from gateway.providers.base import ProviderError, Response, ToolUsage

RESULT_CHARACTERS: Final = 200
"""The number of characters of a tool's result in a step."""


class TraceRecorder:
    """The recorder of a run, with the interface of `Reader`.

    `read` gets every event of the run and only stores the event. The steps are made on access. The clock gives the
    time: a step began `duration_ms` before the event.
    """

    kinds: Collection[type[events.ObservedEvent]]

    def __init__(
        self,
        run_id: str,
        *,
        clock: Callable[[], datetime],
        parent_run_id: str | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> None:
        self._run_id, self._clock, self.parent_run_id = run_id, clock, parent_run_id
        self.metadata = dict(metadata or {})
        """The metadata of the trace. May change until `trace` is called."""
        self._began = clock()
        self._unmade: list[tuple[datetime, events.RunEvent]] = []
        self._made = _Steps(self._began)
        self._used: dict[str, _Used] = {}
        self._ended: tuple[str | None, datetime | None] = (None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as the trace so far, without the clock."""
        return StoredTrace, (self.trace(),)

    @property
    def run_id(self) -> str:
        return self._run_id

    def read(self, event: events.RunEvent) -> None:
        """Record an event of one of the `kinds`."""
        kind = type(event)
        self._unmade.append((self._clock(), event))
        if (count := _COUNTED.get(kind)) is not None:
            count(self._used, event)
        if kind in _WITH_ERRORS:
            self._make()

    def step(self, type: str, *, duration_ms: float | None = 0.0, summary: str = "", **fields: Any) -> None:
        """Record a step without an event, just ended: inbound, dedup, pending_resolved or delivery.

        `fields` are further fields of a TraceStep.
        """
        self._make()
        began = _began(self._clock(), duration_ms)
        self._made.steps.append(
            TraceStep(type=type, started_at=began, duration_ms=duration_ms, summary=summary, **fields)
        )

    def end(self, stop_reason: str) -> None:
        """Note the end of the run, at the current time."""
        self._ended = (stop_reason, self._clock())

    def trace(self, stop_reason: str | None = None, ended: datetime | None = None) -> AgentTrace:
        """Return the trace so far. The end of the run is `ended`, else the time of the call of `end`, else now."""
        self._make()
        stop_reason, ended = stop_reason or self._ended[0], ended or self._ended[1] or self._clock()
        # Calls to the model follow one another. The clock may stand or be set back, but they took their time.
        called = sum(step.duration_ms or 0.0 for step in self._made.steps if step.type == "llm_call")
        return AgentTrace(
            run_id=self.run_id,
            parent_run_id=self.parent_run_id,
            metadata=dict(self.metadata),
            steps=tuple(self._made.steps),
            started_at=self._began,
            ended_at=ended,
            stop_reason=stop_reason,
            total_duration_ms=max((ended - self._began).total_seconds() * 1000, called),
        )

    @property
    def reasoning(self) -> str:
        """The model's text beside the last tool calls. Empty without tool calls."""
        return history[-1] if (history := self.reasoning_history) else ""

    @property
    def reasoning_history(self) -> tuple[str, ...]:
        """The model's text beside the tool calls, for each reply with tool calls."""
        self._make()
        return tuple(self._made.reasoning)

    def by_tool(self) -> Mapping[str, ToolUsage]:
        """Return the usage of each tool.

        The tokens of a reply are divided among the calls. A call still waiting for a person is not counted yet.
        """
        return {name: ToolUsage(**used) for name, used in self._used.items()}

    def _make(self) -> None:
        """Make steps from the events, and drop the events."""
        unmade, self._unmade = self._unmade, []
        for at, event in unmade:
            self._made.at = at
            self._made.read(event)


def _began(at: datetime, duration_ms: float | None) -> datetime:
    return at - timedelta(milliseconds=duration_ms or 0.0)


def _error_text(error: BaseException) -> str:
    """Return the text of an error for operators. Only texts of our own errors are free of people's words."""
    return str(error) if isinstance(error, ProviderError) else describe_error(error)


def _reply(response: Response) -> str:
    calls = ", ".join(call.name for call in response.tool_calls)
    cut = "" if response.finish in ("stop", "tools") else f" ({response.finish})"
    return (f"calls {calls}" if calls else f"{len(response.content)} characters") + cut


def _moment(type: str, said: Callable[[Any], str]) -> Callable[[_Steps, Any], None]:
    """Return the method for an event recorded as a moment with a summary."""

    def read(self: _Steps, event: Any) -> None:
        self.moment(type, said(event))

    return read


class _Steps(EventReader):
    """The steps of a run's trace, made from the events."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        """The time of the current event."""
        self.steps: list[TraceStep] = []
        self.reasoning: list[str] = []
        self._args: dict[str, Mapping[str, Json]] = {}
        """Call id -> the model's arguments."""
        self._raised = 0
        """The `id` of the error of the last failed call to the model without a retry, else 0."""

    def moment(self, type: str, summary: str, **fields: Any) -> None:
        """Add a step without a duration."""
        self.steps.append(TraceStep(type=type, started_at=self.at, summary=summary, **fields))

    def _select(self, response: Response, *, from_checkpoint: bool = False) -> None:
        """Add the calls of a reply."""
        if not response.tool_calls:
            return
        self.reasoning.append(response.content)
        duration = None if from_checkpoint else 0.0
        for call in response.tool_calls:
            self._args[call.call_id] = call.args
            self.steps.append(
                TraceStep(
                    type="tool_selection",
                    started_at=self.at,
                    duration_ms=duration,
                    summary=call.name,
                    error=call.parse_error,
                    error_type=None if call.parse_error is None else "parse_error",
                    reasoning=response.content,
                    tool_name=call.name,
                    tool_args=call.args,
                    call_id=call.call_id,
                    from_checkpoint=from_checkpoint,
                )
            )

    def llm_end(self, event: events.LlmEnd) -> None:
        if event.from_cache:  # the step of the hit stands for it
            return
        duration = None if event.from_checkpoint else event.duration_ms
        asked, answered = event.requested_model, event.response.model
        self.steps.append(
            TraceStep(
                type="llm_call",
                started_at=_began(self.at, duration),
                duration_ms=duration,
                summary=_reply(event.response),
                model=answered,
                requested_model=asked if asked not in ("", answered) else None,
                prompt_tokens=event.usage.prompt_tokens,
                completion_tokens=event.usage.completion_tokens,
                cost_usd=event.usage.cost_usd,
                from_checkpoint=event.from_checkpoint,
                provider=event.provider,
            )
        )
        self._select(event.response, from_checkpoint=event.from_checkpoint)

    def cache_hit(self, event: events.CacheHit) -> None:
        self.moment("cache_hit", _reply(event.response), model=event.model)
        self._select(event.response)

    def llm_error(self, event: events.LlmError) -> None:
        again = event.retry_in_seconds
        self._raised = id(event.error) if again is None else 0
        self.steps.append(
            TraceStep(
                type="error",
                started_at=_began(self.at, event.duration_ms),
                duration_ms=event.duration_ms,
                summary=f"attempt {event.attempt}, " + ("not retried" if again is None else f"retried in {again:g} s"),
                error=_error_text(event.error),
                error_type=type(event.error).__name__,
                model=event.model,
                provider=event.provider,
            )
        )

    def error(self, event: events.RunError) -> None:
        if id(event.error) == self._raised:  # the failed call to the model is a step already
            return
        self.moment("error", "", error=_error_text(event.error), error_type=type(event.error).__name__)

    def tool_end(self, event: events.ToolEnd) -> None:
        files = f", {len(event.artifacts)} files" if event.artifacts else ""
        self.steps.append(
            TraceStep(
                type="tool_execution",
                started_at=_began(self.at, event.duration_ms),
                duration_ms=None if event.from_checkpoint else event.duration_ms,
                summary=f"{event.tool_name}: {len(event.result)} characters{files}",
                tool_name=event.tool_name,
                tool_args=self._args.get(event.call_id),
                tool_result=event.result[:RESULT_CHARACTERS],
                call_id=event.call_id,
                from_checkpoint=event.from_checkpoint,
            )
        )

    def tool_error(self, event: events.ToolErrorRaised) -> None:
        self.steps.append(
            TraceStep(
                type="tool_execution",
                started_at=_began(self.at, event.duration_ms),
                duration_ms=None if event.from_checkpoint else event.duration_ms,
                summary=event.tool_name,
                error=event.what,
                error_type=type(event.error).__name__,
                tool_name=event.tool_name,
                tool_args=event.tool_args,
                call_id=event.call_id,
                from_checkpoint=event.from_checkpoint,
            )
        )

    def structured_validate(self, event: events.StructuredValidate) -> None:
        if not event.success:
            self.moment("structured_retry", f"attempt {event.attempt}", error=event.error, error_type="validation")

    def guardrail_triggered(self, event: events.GuardrailTriggered) -> None:
        name = event.guardrail_name.lower()
        kind = "guardrail"
        if "coherence" in name:
            kind = "coherence_check"
        elif event.stage == "tool_results" and ("screening" in name or "injection" in name):
            kind = "output_screening"
        detail = f": {event.detail}" if event.detail else ""
        self.moment(kind, f"{event.guardrail_name}: {event.action} at {event.stage}{detail}")

    def provider_fallback(self, event: events.ProviderFallback) -> None:
        summary = f"{event.failed_provider} -> {event.next_provider}"
        error, kind = _error_text(event.error), type(event.error).__name__
        self.moment("provider_fallback", summary, error=error, error_type=kind, provider=event.failed_provider)

    def pending_stashed(self, event: events.PendingStashed) -> None:
        action = event.action
        summary = f"{action.kind}: action {action.pending_action_id}"
        earlier = {"duration_ms": None, "from_checkpoint": True} if event.from_checkpoint else {}
        self.moment("pending_stashed", summary, tool_name=action.kind, call_id=event.call_id or None, **earlier)

    def vetoed(self, event: events.InterceptorVetoed) -> None:
        tool, call = event.tool_name or None, event.call_id or None
        self.moment("vetoed", f"{event.stage}: {event.interceptor}", tool_name=tool, call_id=call)

    session_load = _moment("session_load", lambda event: f"{event.message_count} messages")
    session_save = _moment("session_save", lambda event: f"{event.message_count} messages")
    memory_trim = _moment(
        "memory_trim",
        lambda event: f"{event.messages_removed} removed, {event.messages_remaining} remain: {event.reason}",
    )
    memory_summarize = _moment("memory_summarize", lambda event: f"{event.messages_summarized} messages")
    entity_extraction = _moment("entity_extraction", lambda event: f"{event.entities_extracted} entities")
    kg_extraction = _moment("kg_extraction", lambda event: f"{event.triples_extracted} triples")
    prompt_compressed = _moment(
        "prompt_compressed",
        lambda event: f"{event.before_tokens} -> {event.after_tokens} tokens, {event.messages_compressed} messages",
    )
    budget_exceeded = _moment("budget_exceeded", lambda event: event.reason)
    cancelled = _moment("cancelled", lambda event: event.reason)
    tool_loop_detected = _moment("loop_detected", lambda event: f"{event.detector_name}: {event.details}")
    model_switch = _moment("model_switch", lambda event: f"{event.old_model} -> {event.new_model}")


TraceRecorder.kinds = _Steps.kinds


class _Used(TypedDict):
    """The usage of a tool so far, with the field names of ToolUsage."""

    calls: int
    failed: int
    duration_ms: float
    tokens: int


def _of(used: dict[str, _Used], tool: str) -> _Used:
    return used.setdefault(tool, {"calls": 0, "failed": 0, "duration_ms": 0.0, "tokens": 0})


def _count_reply(used: dict[str, _Used], event: events.LlmEnd | events.CacheHit) -> None:
    if isinstance(event, events.LlmEnd) and event.from_cache:
        return
    if calls := event.response.tool_calls:
        share, rest = divmod(event.response.usage.total_tokens, len(calls))
        for number, call in enumerate(calls):
            _of(used, call.name)["tokens"] += share + (number < rest)


def _count_call(used: dict[str, _Used], event: events.ToolEnd | events.ToolErrorRaised) -> None:
    of = _of(used, event.tool_name)
    of["calls"] += 1
    of["duration_ms"] += event.duration_ms
    if isinstance(event, events.ToolErrorRaised):
        of["failed"] += 1


_COUNTED: Final[Mapping[type[events.ObservedEvent], Callable[[dict[str, _Used], Any], None]]] = {
    **dict.fromkeys((events.LlmEnd, events.CacheHit), _count_reply),
    **dict.fromkeys((events.ToolEnd, events.ToolErrorRaised), _count_call),
}
_WITH_ERRORS: Final = frozenset({events.LlmError, events.RunError, events.ToolErrorRaised, events.ProviderFallback})
"""The events with an error. Steps of these events are made at once.

An error holds the frames of the raising code, and the frames hold the recorder.
"""
