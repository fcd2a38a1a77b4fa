"""The result of a run of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, Literal, Protocol, TypeAlias

from channels.formatting import read_markdown, to_plain
from gateway.artifacts import Artifact
from gateway.observe.trace import AgentTrace
from gateway.providers.base import ModelMessage, ToolCall, Usage
from gateway.tools import PendingAction

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
"""The reason for the end of a run or a turn."""


NO_TRACE: Final = AgentTrace(run_id="", started_at=datetime.min.replace(tzinfo=UTC))
"""The trace of a result without a run: of a command or a decision."""


class RunRecord(Protocol):
    """The record of a run: the recorder, or a stored trace."""

    @property
    def run_id(self) -> str: ...

    def trace(self) -> AgentTrace: ...

    @property
    def reasoning(self) -> str: ...

    @property
    def reasoning_history(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """The record of a stored run, or an empty record."""

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
    """The answer. Empty if the run ended without an answer: see `stop_reason`."""
    artifacts: tuple[Artifact, ...] = ()
    """The files emitted by tools, in the order of the calls."""
    pending: tuple[PendingAction, ...] = ()
    """The actions to ask a person about. Outside of a chat no person is asked."""
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    """The number of calls to the model."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls of the model, in order. With `routing_only`, the chosen calls."""
    messages: tuple[ModelMessage, ...] = ()
    """The messages added to the conversation by the run, in order."""
    provider_used: str = ""
    """The provider of the last reply."""
    error: str = ""
    """The reason for a missing answer, for operators, not for the person in the chat.

    The model was not reachable, or no answer fitted the `response_format`.
    """
    parsed: Any = None
    """The value of an answer with a `response_format`: an instance of the pydantic model, or JSON."""

    record: RunRecord = field(default=StoredTrace(), compare=False, repr=False)
    """The source of `trace` and `reasoning`, computed on access."""

    @property
    def plain(self) -> str:
        """The answer as plain text, without the marks and escapes of Markdown."""
        return to_plain(read_markdown(self.content))

    @property
    def trace(self) -> AgentTrace:
        """The steps of the run. Ignored in comparisons of results."""
        return self.record.trace()

    @property
    def reasoning(self) -> str:
        """The model's text beside the last tool calls. For operators: no channel shows this text."""
        return self.record.reasoning

    @property
    def reasoning_history(self) -> tuple[str, ...]:
        """The model's text beside the tool calls, for each reply with tool calls."""
        return self.record.reasoning_history

    @property
    def cost_usd(self) -> float | None:
        """The cost of the run in US dollars; None if a price is unknown."""
        return self.usage.cost_usd


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of the model's text."""

    text: str
