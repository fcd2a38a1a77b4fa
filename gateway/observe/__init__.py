"""Observe runs: events, readers, traces and results."""

from gateway.observe.feed import Feed, Notice
from gateway.observe.logging_observer import LoggingObserver
from gateway.observe.observer import AgentObserver
from gateway.observe.results import AgentResult, StopReason, StreamChunk
from gateway.observe.trace import AgentTrace, TraceStep

__all__ = [
    "AgentObserver",
    "AgentResult",
    "AgentTrace",
    "Feed",
    "LoggingObserver",
    "Notice",
    "StopReason",
    "StreamChunk",
    "TraceStep",
]
