"""The recorder: it makes the trace of a run out of its events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypedDict

from channels import Json
from gateway.logs import describe_error
from gateway.observe.events import (
    BudgetExceeded,
    CacheHit,
    Cancelled,
    EntityExtraction,
    GuardrailTriggered,
    InterceptorVetoed,
    KgExtraction,
    LlmEnd,
    LlmError,
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
)
from gateway.observe.results import StoredTrace
from gateway.observe.trace import AgentTrace, TraceStep
from gateway.providers.base import ProviderError, Response, ToolUsage

__all__ = ["RESULT_CHARACTERS", "TraceRecorder"]

RESULT_CHARACTERS: Final = 200
"""The characters of a tool's result that a step keeps."""


class TraceRecorder:
    """A recorder of one run: a `RunReader`.

    Every event of the run comes through `read`, so it only keeps them. The steps are made when they are asked for. The
    time is the clock's: a step began its duration before the event was told.
    """

    kinds: Collection[type[RunEvent]]

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
        """The metadata of the trace, which may change until the trace is asked for."""
        self._began = clock()
        self._unmade: list[tuple[datetime, RunEvent]] = []
        self._made = _Made()
        self._used: dict[str, _Used] = {}
        self._ended: tuple[str | None, datetime | None] = (None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as the trace so far, without the clock."""
        return StoredTrace, (self.trace(),)

    @property
    def run_id(self) -> str:
        return self._run_id

    def read(self, event: RunEvent) -> None:
        """Record an event of one of the `kinds`."""
        kind = type(event)
        self._unmade.append((self._clock(), event))
        if (count := _COUNTED.get(kind)) is not None:
            count(self._used, event)
        if kind in _WITH_ERRORS:
            self._make()

    def step(self, type: str, *, duration_ms: float | None = 0.0, summary: str = "", **fields: Any) -> None:
        """Record a step that no event tells, which has just ended: inbound, dedup, pending_resolved or delivery.

        `fields` are further fields of a TraceStep.
        """
        self._make()
        began = _began(self._clock(), duration_ms)
        self._made.steps.append(
            TraceStep(type=type, started_at=began, duration_ms=duration_ms, summary=summary, **fields)
        )

    def end(self, stop_reason: str) -> None:
        """Note the end of the run, which is now."""
        self._ended = (stop_reason, self._clock())

    def trace(self, stop_reason: str | None = None, ended: datetime | None = None) -> AgentTrace:
        """Return the trace so far. The run ended when `end` said so, else now, unless it is given."""
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
        """The model's text beside its last tool calls; empty if there is none."""
        return history[-1] if (history := self.reasoning_history) else ""

    @property
    def reasoning_history(self) -> tuple[str, ...]:
        """The model's text beside its tool calls, one for each reply that called tools."""
        self._make()
        return tuple(self._made.reasoning)

    def by_tool(self) -> Mapping[str, ToolUsage]:
        """Return how each tool was used.

        The tokens of a reply are divided among its calls. A call that waits for a person counts as no call yet.
        """
        return {name: ToolUsage(**used) for name, used in self._used.items()}

    def _make(self) -> None:
        """Make steps of the events, and let the events go."""
        unmade, self._unmade = self._unmade, []
        for at, event in unmade:
            _MAKERS[type(event)](self._made, at, event)


@dataclass(slots=True)
class _Made:
    """The parts of a run's trace that are made."""

    steps: list[TraceStep] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    args: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    """Call id -> the arguments of the model."""
    raised: int = 0
    """The `id` of the error with which the last call to the model failed for good."""

    def moment(self, type: str, at: datetime, summary: str, **fields: Any) -> None:
        """Add a step that takes no time of its own."""
        self.steps.append(TraceStep(type=type, started_at=at, summary=summary, **fields))

    def select(self, at: datetime, response: Response, *, from_checkpoint: bool = False) -> None:
        """Add the calls of a reply."""
        if not response.tool_calls:
            return
        self.reasoning.append(response.content)
        duration = None if from_checkpoint else 0.0
        for call in response.tool_calls:
            self.args[call.call_id] = call.args
            self.steps.append(
                TraceStep(
                    type="tool_selection",
                    started_at=at,
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


def _began(at: datetime, duration_ms: float | None) -> datetime:
    return at - timedelta(milliseconds=duration_ms or 0.0)


def _error_text(error: BaseException) -> str:
    """Return the text of an error for operators. Only the text of our own errors has no words of people."""
    return str(error) if isinstance(error, ProviderError) else describe_error(error)


def _llm_end(made: _Made, at: datetime, event: LlmEnd) -> None:
    if event.from_cache:  # the step of the hit stands for it
        return
    duration = None if event.from_checkpoint else event.duration_ms
    made.steps.append(
        TraceStep(
            type="llm_call",
            started_at=_began(at, duration),
            duration_ms=duration,
            summary=_reply(event.response),
            model=event.response.model,
            requested_model=event.requested_model if event.requested_model not in ("", event.response.model) else None,
            prompt_tokens=event.usage.prompt_tokens,
            completion_tokens=event.usage.completion_tokens,
            cost_usd=event.usage.cost_usd,
            from_checkpoint=event.from_checkpoint,
            provider=event.provider,
        )
    )
    made.select(at, event.response, from_checkpoint=event.from_checkpoint)


def _reply(response: Response) -> str:
    calls = ", ".join(call.name for call in response.tool_calls)
    cut = "" if response.finish in ("stop", "tools") else f" ({response.finish})"
    return (f"calls {calls}" if calls else f"{len(response.content)} characters") + cut


def _cache_hit(made: _Made, at: datetime, event: CacheHit) -> None:
    made.moment("cache_hit", at, _reply(event.response), model=event.model)
    made.select(at, event.response)


def _llm_error(made: _Made, at: datetime, event: LlmError) -> None:
    again = event.retry_in_seconds
    made.raised = id(event.error) if again is None else 0
    made.steps.append(
        TraceStep(
            type="error",
            started_at=_began(at, event.duration_ms),
            duration_ms=event.duration_ms,
            summary=f"attempt {event.attempt}, " + ("not retried" if again is None else f"retried in {again:g} s"),
            error=_error_text(event.error),
            error_type=type(event.error).__name__,
            model=event.model,
            provider=event.provider,
        )
    )


def _run_error(made: _Made, at: datetime, event: RunError) -> None:
    if id(event.error) == made.raised:  # the failed call to the model is a step already
        return
    made.moment("error", at, "", error=_error_text(event.error), error_type=type(event.error).__name__)


def _tool_end(made: _Made, at: datetime, event: ToolEnd) -> None:
    files = f", {len(event.artifacts)} files" if event.artifacts else ""
    made.steps.append(
        TraceStep(
            type="tool_execution",
            started_at=_began(at, event.duration_ms),
            duration_ms=None if event.from_checkpoint else event.duration_ms,
            summary=f"{event.tool_name}: {len(event.result)} characters{files}",
            tool_name=event.tool_name,
            tool_args=made.args.get(event.call_id),
            tool_result=event.result[:RESULT_CHARACTERS],
            call_id=event.call_id,
            from_checkpoint=event.from_checkpoint,
        )
    )


def _tool_error(made: _Made, at: datetime, event: ToolErrorRaised) -> None:
    made.steps.append(
        TraceStep(
            type="tool_execution",
            started_at=_began(at, event.duration_ms),
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


def _structured_validate(made: _Made, at: datetime, event: StructuredValidate) -> None:
    if not event.success:
        made.moment("structured_retry", at, f"attempt {event.attempt}", error=event.error, error_type="validation")


def _guardrail(made: _Made, at: datetime, event: GuardrailTriggered) -> None:
    name = event.guardrail_name.lower()
    kind = "guardrail"
    if "coherence" in name:
        kind = "coherence_check"
    elif event.stage == "tool_results" and ("screening" in name or "injection" in name):
        kind = "output_screening"
    detail = f": {event.detail}" if event.detail else ""
    made.moment(kind, at, f"{event.guardrail_name}: {event.action} at {event.stage}{detail}")


def _fallback(made: _Made, at: datetime, event: ProviderFallback) -> None:
    summary = f"{event.failed_provider} -> {event.next_provider}"
    error, kind = _error_text(event.error), type(event.error).__name__
    made.moment("provider_fallback", at, summary, error=error, error_type=kind, provider=event.failed_provider)


def _pending_stashed(made: _Made, at: datetime, event: PendingStashed) -> None:
    action = event.action
    summary = f"{action.kind}: action {action.pending_action_id}"
    earlier = {"duration_ms": None, "from_checkpoint": True} if event.from_checkpoint else {}
    made.moment("pending_stashed", at, summary, tool_name=action.kind, call_id=event.call_id or None, **earlier)


def _vetoed(made: _Made, at: datetime, event: InterceptorVetoed) -> None:
    tool, call = event.tool_name or None, event.call_id or None
    made.moment("vetoed", at, f"{event.stage}: {event.interceptor}", tool_name=tool, call_id=call)


def _plain(type: str, said: Callable[[Any], str]) -> _Maker:
    """Return the maker of a step that is only a moment and a summary."""
    return lambda made, at, event: made.moment(type, at, said(event))


_Maker: TypeAlias = Callable[[_Made, datetime, Any], None]
_MAKERS: Final[Mapping[type[RunEvent], _Maker]] = {
    LlmEnd: _llm_end,
    CacheHit: _cache_hit,
    LlmError: _llm_error,
    RunError: _run_error,
    ToolEnd: _tool_end,
    ToolErrorRaised: _tool_error,
    StructuredValidate: _structured_validate,
    GuardrailTriggered: _guardrail,
    ProviderFallback: _fallback,
    PendingStashed: _pending_stashed,
    InterceptorVetoed: _vetoed,
    SessionLoad: _plain("session_load", lambda event: f"{event.message_count} messages"),
    SessionSave: _plain("session_save", lambda event: f"{event.message_count} messages"),
    MemoryTrim: _plain(
        "memory_trim",
        lambda event: f"{event.messages_removed} removed, {event.messages_remaining} remain: {event.reason}",
    ),
    MemorySummarize: _plain("memory_summarize", lambda event: f"{event.messages_summarized} messages"),
    EntityExtraction: _plain("entity_extraction", lambda event: f"{event.entities_extracted} entities"),
    KgExtraction: _plain("kg_extraction", lambda event: f"{event.triples_extracted} triples"),
    PromptCompressed: _plain(
        "prompt_compressed",
        lambda event: f"{event.before_tokens} -> {event.after_tokens} tokens, {event.messages_compressed} messages",
    ),
    BudgetExceeded: _plain("budget_exceeded", lambda event: event.reason),
    Cancelled: _plain("cancelled", lambda event: event.reason),
    ToolLoopDetected: _plain("loop_detected", lambda event: f"{event.detector_name}: {event.details}"),
    ModelSwitch: _plain("model_switch", lambda event: f"{event.old_model} -> {event.new_model}"),
}
TraceRecorder.kinds = frozenset(_MAKERS)


class _Used(TypedDict):
    """The usage of a tool so far, with the names of ToolUsage."""

    calls: int
    failed: int
    duration_ms: float
    tokens: int


def _of(used: dict[str, _Used], tool: str) -> _Used:
    return used.setdefault(tool, {"calls": 0, "failed": 0, "duration_ms": 0.0, "tokens": 0})


def _count_reply(used: dict[str, _Used], event: LlmEnd | CacheHit) -> None:
    if isinstance(event, LlmEnd) and event.from_cache:
        return
    if calls := event.response.tool_calls:
        share, rest = divmod(event.response.usage.total_tokens, len(calls))
        for number, call in enumerate(calls):
            _of(used, call.name)["tokens"] += share + (number < rest)


def _count_call(used: dict[str, _Used], event: ToolEnd | ToolErrorRaised) -> None:
    of = _of(used, event.tool_name)
    of["calls"] += 1
    of["duration_ms"] += event.duration_ms
    if isinstance(event, ToolErrorRaised):
        of["failed"] += 1


_COUNTED: Final[Mapping[type[RunEvent], Callable[[dict[str, _Used], Any], None]]] = {
    LlmEnd: _count_reply,
    CacheHit: _count_reply,
    ToolEnd: _count_call,
    ToolErrorRaised: _count_call,
}
_WITH_ERRORS: Final = frozenset({LlmError, RunError, ToolErrorRaised, ProviderFallback})
"""The events with an error, of which steps are made at once.

An error holds the frames through which it passed, and these hold the recorder.
"""
