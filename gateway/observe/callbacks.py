"""Callbacks: functions that are called at single events: ``@bot.on("turn_end")``."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from gateway.observe.events import ObservedEvent
from gateway.observe.observer import AgentObserver, arguments

__all__ = ["Callbacks", "event_names"]


@cache
def event_names() -> frozenset[str]:
    """Return the names of the events that have a method of AgentObserver, without ``on_``."""
    methods = {name.removeprefix("on_") for name in vars(AgentObserver) if name.startswith("on_")}
    return frozenset(methods - {"event"})


class _Caches(Protocol):
    """A teller, which knows the listeners of each event."""

    def listeners_changed(self) -> None: ...


class Callbacks(AgentObserver):
    """An observer with functions that are added by the name of an event. Each gets the arguments of its method.

    The `def` functions of an event run first, then the `async def` ones, both in the order in which they were added.
    An error of one does not keep the others from being called.
    """

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[..., Any]]] = {}
        self._tellers: weakref.WeakSet[_Caches] = weakref.WeakSet()

    def check_name(self, name: str) -> None:
        """Raises ValueError for a name that is not a method of AgentObserver without ``on_``."""
        if name not in event_names():
            raise ValueError(f"{name!r} is no event{_near(name)}")

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Add a function to an event, from the loop's thread. It is called from the next event on.

        Raises ValueError as `check_name` does.
        """
        self.check_name(name)
        self._functions.setdefault(name, []).append(function)
        for teller in list(self._tellers):
            teller.listeners_changed()

    def tell_changes_to(self, teller: _Caches) -> None:
        """Call `listeners_changed` of this teller whenever a function is added. It is not kept alive."""
        self._tellers.add(teller)

    def wants(self, name: str) -> bool:
        """Return True if the event of this name has a function now."""
        return name in self._functions

    def on_event(self, event: ObservedEvent) -> Any:
        """Call the functions of an event. Return the rest to await, or None."""
        values = [getattr(event, each) for each in arguments(event.name)]
        later, errors = [], list[Exception]()
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
                    later.append(lambda *_, unfinished=result: unfinished)
        if later:
            return _call_in_order(later, values, errors)
        _raise(errors)
        return None


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
    """Raise the errors of the functions, which the teller counts and logs as one."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("several functions failed", errors)


def _near(name: str) -> str:
    from difflib import get_close_matches  # imported only on an error, to keep the start fast

    known = sorted(event_names())
    near = get_close_matches(name, known)
    return f": did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known)}"
