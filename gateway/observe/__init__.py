"""What a run leaves behind: its events, their readers, its result."""

from gateway.observe.feed import Feed, Notice
from gateway.observe.logging_observer import LoggingObserver
from gateway.observe.observer import AgentObserver
from gateway.observe.results import AgentResult, StopReason, StreamChunk

__all__ = ["AgentObserver", "AgentResult", "Feed", "LoggingObserver", "Notice", "StopReason", "StreamChunk"]
