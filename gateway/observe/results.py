"""The result of a run of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gateway.artifacts import Artifact
from gateway.providers.base import ModelMessage, ToolCall, Usage
from gateway.tools import PendingAction

__all__ = ["AgentResult", "StopReason", "StreamChunk"]

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
    "decided",
    "command",
]


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
    error: str = ""
    """The reason why the model could not be reached: for operators, not for the person in the chat."""


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of the model's text."""

    text: str
