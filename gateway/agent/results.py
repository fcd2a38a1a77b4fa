"""What a run of an agent gives."""

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
    """What became of one message."""

    content: str
    """The answer; empty when the run ended without one, which `stop_reason` then says."""
    artifacts: tuple[Artifact, ...] = ()
    """Files the tools handed over, in the order of their calls."""
    pending: tuple[PendingAction, ...] = ()
    """What a person is being asked, or would have to be."""
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    """Calls to the model."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the model called, in order; with `routing_only`, what it chose."""
    messages: tuple[ModelMessage, ...] = ()
    """What the run adds to the conversation, in order."""
    error: str = ""
    """Why the model could not be reached: for operators, not for the person in the chat."""


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of the model's text."""

    text: str
