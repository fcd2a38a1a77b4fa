"""The errors of tools.

AskfirstError
└── ToolError                   `tool_name` names the tool
    ├── ToolValidationError     a definition, or a model's arguments, are invalid; the function did not run
    ├── ToolExecutionError      the function raised; the cause is chained
    ├── ToolFailed              the function failed, with a text for the model
    ├── NothingDone             the call certainly had no effect
    │   └── ToolBusy            a call that has not ended holds its lock
    └── OutcomeUnknown          the call may or may not have had its effect
        └── ToolTimeout         the call did not end in time
"""

from __future__ import annotations

from dataclasses import dataclass

from channels import AskfirstError
from gateway.logs import describe_error

__all__ = [
    "NothingDone",
    "OutcomeUnknown",
    "Problem",
    "ToolBusy",
    "ToolError",
    "ToolExecutionError",
    "ToolFailed",
    "ToolTimeout",
    "ToolValidationError",
    "cause_of",
]


class ToolError(AskfirstError):
    """The base of the errors of a tool. The text is for the model and the author, never for the person in the chat."""

    tool_name: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with one parameter. `parameter` is empty for a problem of the whole tool."""

    parameter: str
    issue: str
    suggestion: str = ""

    def __str__(self) -> str:
        text = f"{self.parameter}: {self.issue}" if self.parameter else self.issue
        return f"{text}. {self.suggestion}" if self.suggestion else text


class ToolValidationError(ToolError):
    """A tool's definition, or the arguments of a call, are invalid. The function did not run."""

    def __init__(self, tool_name: str, *problems: Problem, expected: str = "") -> None:
        text = f"Tool {tool_name!r}: " + "; ".join(map(str, problems))
        super().__init__(f"{text} (expected: {expected})" if expected else text)
        self.tool_name, self.problems, self.expected = tool_name, problems, expected


class ToolExecutionError(ToolError):
    """The tool's function raised `error`, which is also the cause.

    The text names the type of `error` and the place where it was raised. It leaves out the text of `error`, which may
    hold a secret or a person's words: the model's vendor reads it.
    """

    def __init__(self, tool_name: str, error: BaseException) -> None:
        super().__init__(f"Error executing tool {tool_name!r}: {describe_error(error)}")
        self.tool_name, self.error = tool_name, error


class ToolFailed(ToolError):
    """Raised by a tool that failed. The model gets the text; of any other error it gets only the type and the place."""


def cause_of(error: BaseException) -> BaseException:
    """Return the error that the tool's function raised."""
    return error.error if isinstance(error, ToolExecutionError) else error


class NothingDone(ToolError):
    """Raised by a tool to say that it certainly had no effect."""


class ToolBusy(NothingDone):
    """The tool did not run: a call that exceeded its timeout, in a thread, still holds the lock `key`."""

    def __init__(self, tool_name: str, key: str) -> None:
        super().__init__(f"Tool {tool_name!r} did not run: a call that has not ended in time holds {key!r}")
        self.tool_name, self.key = tool_name, key


class OutcomeUnknown(ToolError):
    """Raised by a tool to say that it may or may not have had its effect."""


class ToolTimeout(OutcomeUnknown):
    """The tool did not end in time. It was cancelled, but a function in a thread may still be running."""

    def __init__(self, tool_name: str, seconds: float) -> None:
        super().__init__(f"Tool {tool_name!r} timed out after {seconds:g} seconds")
        self.tool_name, self.seconds = tool_name, seconds
