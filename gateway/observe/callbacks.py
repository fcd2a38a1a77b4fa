"""Callbacks: functions called at single events: ``@bot.on("turn_end")``, and the deprecated ``hooks=``."""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, Protocol

from gateway.config.options import WrongOption
from gateway.observe.events import ObservedEvent
from gateway.observe.observer import AgentObserver, arguments

_HOOKS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "on_agent_start": ("run_start", ("messages",)),
    "on_agent_end": ("run_end", ("result", "result.usage")),
    "on_iteration_start": ("iteration_start", ("iteration", "messages")),
    "on_iteration_end": ("iteration_end", ("iteration", "response")),
    "on_tool_start": ("tool_start", ("tool_name", "tool_args")),
    "on_tool_chunk": ("tool_chunk", ("tool_name", "chunk")),
    "on_tool_end": ("tool_end", ("tool_name", "result", "duration_ms")),
    "on_tool_error": ("tool_error", ("tool_name", "error", "tool_args")),
    "on_llm_start": ("llm_start", ("messages", "model")),
    "on_llm_end": ("llm_end", ("response", "usage")),
    "on_error": ("error", ("error", "context")),
}
"""Hook -> the event, and the values of the event passed to the hook."""
HOOKS: Final = tuple(_HOOKS)
"""The names of all hooks."""


@cache
def event_names() -> frozenset[str]:
    """Return the names of the events with a method in AgentObserver, without ``on_``."""
    methods = {name.removeprefix("on_") for name in vars(AgentObserver) if name.startswith("on_")}
    return frozenset(methods - {"event"})


class _Caches(Protocol):
    """A teller with cached listeners for each event."""

    def listeners_changed(self) -> None: ...


class Callbacks(AgentObserver):
    """An observer with functions added by event name. A function gets the arguments of the event's method.

    The `def` functions of an event run first, then the `async def` functions, both in the order of addition. After an
    error of a function, the other functions are still called.
    """

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[..., Any]]] = {}
        self._tellers: weakref.WeakSet[_Caches] = weakref.WeakSet()

    def check_name(self, name: str) -> None:
        """Raises ValueError for a name without a method `on_NAME` of AgentObserver."""
        if name not in event_names():
            known = event_names()
            raise ValueError(f"{name!r} is no event{_near(name, known) or '; there are ' + ', '.join(sorted(known))}")

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Add a function to an event, from the loop's thread. The function is called from the next event on.

        Raises ValueError as `check_name` does.
        """
        self.check_name(name)
        self._functions.setdefault(name, []).append(function)
        for teller in list(self._tellers):
            teller.listeners_changed()

    def tell_changes_to(self, teller: _Caches) -> None:
        """Call `listeners_changed` of this teller whenever a function is added. Holds only a weak reference."""
        self._tellers.add(teller)

    def wants(self, name: str) -> bool:
        """Return True if the event of this name has a function now."""
        return name in self._functions

    def _arguments(self, name: str) -> Sequence[str]:
        """Return the names of the event's values for the functions."""
        return arguments(name)

    def on_event(self, event: ObservedEvent) -> Any:
        """Call the functions of an event. Return the rest to await, or None."""
        values = [attrgetter(each)(event) for each in self._arguments(event.name)]
        later, errors, made = [], list[Exception](), list[Awaitable[Any]]()
        for function in self._functions.get(event.name, ()):
            if _is_async(function):  # called later: a coroutine that is dropped before its start would warn
                later.append(function)
                continue
            try:
                result = function(*values)
            except Exception as error:  # noqa: BLE001 - the other functions are called all the same
                errors.append(error)
            else:
                if inspect.isawaitable(result):
                    made.append(result)
                    later.append(lambda *_, unfinished=result: unfinished)
        if later:
            return _Rest(_call_in_order(later, values, errors), made)
        _raise(errors)
        return None


class HooksObserver(Callbacks):
    """Callbacks given as a mapping, `def` or `async def`. Hooks missing in the mapping are skipped.

    The hooks and the arguments: ``on_agent_start(messages)``, ``on_agent_end(response, usage)`` with the AgentResult as
    the response, ``on_iteration_start(iteration, messages)``, ``on_iteration_end(iteration, response)``,
    ``on_tool_start(tool_name, args)``, ``on_tool_chunk(tool_name, chunk)``, ``on_tool_end(tool_name, result,
    duration)`` with the duration in milliseconds, ``on_tool_error(tool_name, error, args)``, ``on_llm_start(messages,
    model)``, ``on_llm_end(response, usage)``, ``on_error(error, context)``.

    A hook cannot change a run: the return value is ignored, and errors are counted and logged. Raises WrongOption for
    an unknown name.

    .. deprecated:: Give an AgentObserver to ``observers=`` instead.
    """

    def __init__(self, hooks: Mapping[str, Callable[..., Any]], *, stacklevel: int = 2) -> None:
        super().__init__()
        listed = ", ".join(HOOKS)
        unknown = [name for name in hooks if name not in _HOOKS]
        issues = {f"hooks[{name!r}]": f"is no hook{_near(name, HOOKS, 1)}; there are {listed}" for name in unknown}
        if issues:
            raise WrongOption("AgentConfig", issues)
        warnings.warn(
            "hooks= is deprecated: override the methods of gateway.AgentObserver, and give it to observers=",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
        self._values = dict(_HOOKS.values())
        for name, function in hooks.items():
            self.add(_HOOKS[name][0], function)

    def _arguments(self, name: str) -> Sequence[str]:
        return self._values.get(name) or arguments(name)


class _Rest(Coroutine[Any, Any, None]):
    """The rest of the work of an event. `made` are the awaitables that its functions have made already."""

    def __init__(self, rest: Coroutine[Any, Any, None], made: Sequence[Awaitable[Any]]) -> None:
        self._rest, self._made = rest, made

    def __await__(self) -> Generator[Any, None, None]:
        return self._rest.__await__()

    def send(self, value: Any) -> Any:
        return self._rest.send(value)

    def throw(self, *error: Any) -> Any:
        return self._rest.throw(*error)

    def close(self) -> None:
        """Close the rest. Without this, Python would warn of coroutines that were never awaited."""
        self._rest.close()
        for each in self._made:
            if isinstance(each, Coroutine):
                each.close()


async def _call_in_order(
    functions: Sequence[Callable[..., Any]], values: Sequence[Any], errors: list[Exception]
) -> None:
    for function in functions:
        try:
            await function(*values)
        except Exception as error:  # noqa: BLE001 - the other functions are called all the same
            errors.append(error)
    _raise(errors)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _raise(errors: Sequence[Exception]) -> None:
    """Raise the errors of the functions as one error, for the count and the log of the teller."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("several functions failed", errors)


def _near(name: str, known: Collection[str], most: int = 3) -> str:
    from difflib import get_close_matches  # imported only on an error, to keep the start fast

    near = get_close_matches(name, sorted(known), n=most)
    return f": did you mean {' or '.join(near)}?" if near else ""
