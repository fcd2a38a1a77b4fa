"""HooksObserver: callbacks by name, as a mapping, in place of an AgentObserver. Deprecated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from gateway.config.options import WrongOption
from gateway.observe.events import (
    IterationEnd,
    IterationStart,
    LlmEnd,
    LlmStart,
    ObservedEvent,
    RunEnd,
    RunError,
    RunStart,
    ToolChunk,
    ToolEnd,
    ToolErrorRaised,
    ToolStart,
)
from gateway.observe.observer import AgentObserver

__all__ = ["HOOKS", "HooksObserver"]

_Values: TypeAlias = Callable[[Any], tuple[Any, ...]]

_HOOKS: Final[Mapping[str, tuple[type[ObservedEvent], _Values]]] = {
    "on_agent_start": (RunStart, lambda event: (event.messages,)),
    "on_agent_end": (RunEnd, lambda event: (event.result, event.result.usage)),
    "on_iteration_start": (IterationStart, lambda event: (event.iteration, event.messages)),
    "on_iteration_end": (IterationEnd, lambda event: (event.iteration, event.response)),
    "on_tool_start": (ToolStart, lambda event: (event.tool_name, event.tool_args)),
    "on_tool_chunk": (ToolChunk, lambda event: (event.tool_name, event.chunk)),
    "on_tool_end": (ToolEnd, lambda event: (event.tool_name, event.result, event.duration_ms)),
    "on_tool_error": (ToolErrorRaised, lambda event: (event.tool_name, event.error, event.tool_args)),
    "on_llm_start": (LlmStart, lambda event: (event.messages, event.model)),
    "on_llm_end": (LlmEnd, lambda event: (event.response, event.usage)),
    "on_error": (RunError, lambda event: (event.error, event.context)),
}
HOOKS: Final = tuple(_HOOKS)
"""The names of all hooks."""


class HooksObserver(AgentObserver):
    """An observer that calls the callbacks of a mapping, `def` or `async def`. A name without a callback is skipped.

    The hooks and their arguments: ``on_agent_start(messages)``, ``on_agent_end(response, usage)`` with the
    AgentResult as the response, ``on_iteration_start(iteration, messages)``, ``on_iteration_end(iteration,
    response)``, ``on_tool_start(tool_name, args)``, ``on_tool_chunk(tool_name, chunk)``, ``on_tool_end(tool_name,
    result, duration)`` with the duration in milliseconds, ``on_tool_error(tool_name, error, args)``,
    ``on_llm_start(messages, model)``, ``on_llm_end(response, usage)``, ``on_error(error, context)``.

    A hook cannot change a run: its return value is ignored, and its errors are counted and logged. Raises WrongOption
    for an unknown name.

    .. deprecated:: Give an AgentObserver to ``observers=`` instead.
    """

    def __init__(self, hooks: Mapping[str, Callable[..., Any]], *, stacklevel: int = 2) -> None:
        if issues := {f"hooks[{name!r}]": _unknown(name) for name in hooks if name not in _HOOKS}:
            raise WrongOption("AgentConfig", issues)
        warnings.warn(
            "hooks= is deprecated: override the methods of gateway.AgentObserver, and give it to observers=",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
        self._calls = {_HOOKS[name][0].name: (hook, _HOOKS[name][1]) for name, hook in hooks.items()}

    def wants(self, name: str) -> bool:
        """Return True if the event of this name has a hook."""
        return name in self._calls

    def on_event(self, event: ObservedEvent) -> Any:
        """Call the hook of an event."""
        hook, values = self._calls[event.name]
        return hook(*values(event))


def _unknown(name: str) -> str:
    from difflib import get_close_matches  # imported only on an error, to keep the start fast

    near = get_close_matches(name, HOOKS, n=1)
    return f"is no hook{f': did you mean {near[0]}?' if near else ''}; there are {', '.join(HOOKS)}"
