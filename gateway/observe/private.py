"""Private copies of events for the observers of authors: a change of a copy changes no run.

An event holds the very arguments that are shown to a person and run afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from gateway.observe.events import (
    CacheHit,
    EffectEnd,
    IterationEnd,
    IterationStart,
    LlmEnd,
    LlmStart,
    ObservedEvent,
    PendingDecided,
    PendingLaunched,
    PendingResolved,
    PendingStashed,
    PolicyDecision,
    RunEnd,
    RunStart,
    ToolErrorRaised,
    ToolStart,
)
from gateway.observe.results import AgentResult
from gateway.providers.base import ModelMessage, Response, ToolCall
from gateway.tools.pending_action import PendingAction

__all__ = ["private"]


def private(event: ObservedEvent) -> ObservedEvent:
    """Return the event with copies of its mutable values: arguments of calls and of actions."""
    copies = _COPIES.get(type(event))
    if copies is None:
        return event
    copied = {name: copy(getattr(event, name)) for name, copy in copies.items()}
    return replace(event, **copied)  # type: ignore[type-var]


def _action(action: PendingAction) -> PendingAction:
    return replace(action, args=deepcopy(action.args))


def _calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple([replace(call, args=deepcopy(call.args)) for call in calls])


def _messages(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    copies = [replace(each, tool_calls=_calls(each.tool_calls)) if each.tool_calls else each for each in messages]
    return copies if isinstance(messages, list) else tuple(copies)


def _response(response: Response) -> Response:
    return replace(response, tool_calls=_calls(response.tool_calls))


def _result(result: AgentResult) -> AgentResult:
    values = {name: getattr(result, name) for name in AgentResult.__dataclass_fields__}
    pending, messages = tuple(map(_action, result.pending)), _messages(result.messages)
    return AgentResult(**values | {"pending": pending, "messages": messages, "tool_calls": _calls(result.tool_calls)})


_Copies = Mapping[str, Callable[[Any], Any]]
_ARGS: Final[_Copies] = {"tool_args": deepcopy}
_ACTION: Final[_Copies] = {"action": _action}
_MESSAGES: Final[_Copies] = {"messages": _messages}
_RESPONSE: Final[_Copies] = {"response": _response}
_COPIES: Final[Mapping[type[ObservedEvent], _Copies]] = {
    **dict.fromkeys((ToolStart, ToolErrorRaised, PolicyDecision), _ARGS),
    **dict.fromkeys((PendingStashed, PendingDecided, PendingLaunched, PendingResolved, EffectEnd), _ACTION),
    **dict.fromkeys((RunStart, IterationStart, LlmStart), _MESSAGES),
    **dict.fromkeys((LlmEnd, IterationEnd, CacheHit), _RESPONSE),
    RunEnd: {"result": _result},
}
