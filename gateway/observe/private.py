"""Private copies of events for the observers of authors: changing a copy changes no run.

An event holds the same argument objects as the question to the person and the later call.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Final

from gateway.observe.events import ObservedEvent
from gateway.observe.results import AgentResult
from gateway.providers.base import ModelMessage, Response, ToolCall
from gateway.tools.pending_action import PendingAction

_MUTABLE: Final = frozenset({"action", "messages", "response", "result", "tool_args"})
"""The names of the fields that hold arguments in some event."""


def private(event: ObservedEvent) -> ObservedEvent:
    """Return a copy of the event, with copies of the arguments of calls and of actions."""
    copied = copy(event)
    for name in _MUTABLE & vars(event).keys():
        setattr(copied, name, _copied(name, getattr(event, name)))
    return copied


def _copied(name: str, value: Any) -> Any:
    """Return a copy of a value that holds arguments, else the value."""
    match value:
        case PendingAction():
            return _action(value)
        case Response():
            return replace(value, tool_calls=_calls(value.tool_calls))
        case AgentResult():
            return _result(value)
        case [ModelMessage(), *_]:
            return _messages(value)
        case _ if name == "tool_args":
            return deepcopy(value)
    return value


def _action(action: PendingAction) -> PendingAction:
    return replace(action, args=deepcopy(action.args))


def _calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple([replace(call, args=deepcopy(call.args)) for call in calls])


def _messages(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    copies = [replace(each, tool_calls=_calls(each.tool_calls)) if each.tool_calls else each for each in messages]
    return copies if isinstance(messages, list) else tuple(copies)


def _result(result: AgentResult) -> AgentResult:
    values = {name: getattr(result, name) for name in AgentResult.__dataclass_fields__}
    pending, messages = tuple(map(_action, result.pending)), _messages(result.messages)
    return AgentResult(**values | {"pending": pending, "messages": messages, "tool_calls": _calls(result.tool_calls)})
