"""The errors of tool calls, as the model is told of them."""

from __future__ import annotations

from gateway.tools import (
    NothingDone,
    OutcomeUnknown,
    Tool,
    ToolError,
    ToolExecutionError,
    ToolFailed,
    ToolTimeout,
    leaves_open,
)

__all__ = ["ERROR_LENGTH", "UNKNOWN", "CallFailed", "error_text"]

ERROR_LENGTH = 2000
"""The most characters of an error in a result for the model."""
UNKNOWN = "its outcome is unknown, it may or may not have happened. Do not repeat it; tell the person, or look it up."


class CallFailed(ToolError):
    """A call that did not run, or whose tool raised `error`. The text is for the model."""

    def __init__(self, text: str, error: ToolError | None = None) -> None:
        super().__init__(text)
        self.text, self.error = text, error


def error_text(tool: Tool, error: ToolError) -> str:
    """Return an error of a tool as the result of its call."""
    text = str(error)[:ERROR_LENGTH]
    if isinstance(error, ToolTimeout):
        return text if tool.repeatable else f"{text}: {UNKNOWN}"
    if isinstance(error, OutcomeUnknown):
        return f"Tool {tool.name!r}: {text}: {UNKNOWN}"
    if isinstance(error, ToolExecutionError) and not tool.repeatable and leaves_open(error.error):
        return f"{text}: {UNKNOWN}"
    if isinstance(error, NothingDone):
        return f"Tool {tool.name!r}: nothing was done: {text}"
    if isinstance(error, ToolFailed):
        return f"Error executing tool {tool.name!r}: {text}"
    return text
