"""What a run leaves behind: its events, their readers, its result."""

from gateway.observe.feed import Feed, Notice
from gateway.observe.results import AgentResult, StopReason, StreamChunk

__all__ = ["AgentResult", "Feed", "Notice", "StopReason", "StreamChunk"]
