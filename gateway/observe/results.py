"""The result of a run of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, Literal, Protocol, TypeAlias

from gateway.artifacts import Artifact
from gateway.observe.trace import AgentTrace
from gateway.providers.base import ModelMessage, ToolCall, Usage
from gateway.tools import PendingAction

__all__ = ["NO_TRACE", "AgentResult", "RunRecord", "StopReason", "StoredTrace", "StreamChunk"]

StopReason: TypeAlias = Literal[
    "answered",
    "asked",
    "terminal_tool",
    "stop_condition",
    "max_iterations",
    "needs_confirmation",
    "budget",
    "timeout",
    "cancelled",
    "loop_detected",
    "provider_error",
    "routed",
    "error",
    "guardrail",
    "decided",
    "command",
    "vetoed",
]
"""The reason for which a run or a turn ended."""


NO_TRACE: Final = AgentTrace(run_id="", started_at=datetime.min.replace(tzinfo=UTC))
"""The trace of a result without a run: of a command or a decision."""


class RunRecord(Protocol):
    """The record of a run: its recorder, or the trace that it has left."""

    @property
    def run_id(self) -> str: ...

    def trace(self) -> AgentTrace: ...

    @property
    def reasoning(self) -> str: ...

    @property
    def reasoning_history(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """The record of a run that was stored, or of none."""

    stored: AgentTrace = NO_TRACE

    @property
    def run_id(self) -> str:
        return self.stored.run_id

    def trace(self) -> AgentTrace:
        return self.stored

    @property
    def reasoning(self) -> str:
        return history[-1] if (history := self.reasoning_history) else ""

    @property
    def reasoning_history(self) -> tuple[str, ...]:
        replies = groupby(self.stored.steps, key=lambda step: step.type == "tool_selection")
        return tuple([next(steps).reasoning or "" for calls_tools, steps in replies if calls_tools])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """The result of one message."""

    content: str
    """The answer; empty when the run ended without one. Then `stop_reason` says why."""
    artifacts: tuple[Artifact, ...] = ()
    """The files that tools emitted, in the order of their calls."""
    pending: tuple[PendingAction, ...] = ()
    """The actions that a person is asked about, or would be asked about in a chat."""
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    """The number of calls to the model."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls of the model, in order; with `routing_only`, the calls that it chose."""
    messages: tuple[ModelMessage, ...] = ()
    """The messages that the run adds to the conversation, in order."""
    provider_used: str = ""
    """The provider that gave the last reply."""
    error: str = ""
    """The reason why there is no answer: the model could not be reached, or its answers did not fit the
    `response_format`. It is for operators, not for the person in the chat."""
    parsed: Any = None
    """The value of an answer with a `response_format`: an instance of the pydantic model, or JSON."""

    record: RunRecord = field(default=StoredTrace(), compare=False, repr=False)
    """The record of which `trace` and `reasoning` are made when they are asked for."""

    @property
    def trace(self) -> AgentTrace:
        """The steps of the run. It does not count when two results are compared."""
        return self.record.trace()

    @property
    def reasoning(self) -> str:
        """The text that the model wrote beside its last tool calls. It is for operators: no channel shows it."""
        return self.record.reasoning

    @property
    def reasoning_history(self) -> tuple[str, ...]:
        """The text beside the tool calls of each reply that made some."""
        return self.record.reasoning_history

    @property
    def cost_usd(self) -> float | None:
        """The cost of the run in US dollars; None if a price is unknown."""
        return self.usage.cost_usd


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of the model's text."""

    text: str
