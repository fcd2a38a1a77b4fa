"""The readers inside the gateway: the log, the feed, the metrics, the spans and the trace of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from gateway.observe.events import EVENTS, ObservedEvent

Kind: TypeAlias = type[ObservedEvent]


class Reader(Protocol):
    """A reader of events. `read` does not block, wait or raise."""

    @property
    def kinds(self) -> Collection[Kind] | None:
        """The classes of the events to read."""
        ...

    def read(self, event: ObservedEvent) -> None: ...


class EventReader:
    """A reader with one method for each event, named like the event: `turn_end(event)`.

    Raises TypeError at the definition of the class, if a method takes an `event` and is not named like an event.
    """

    kinds: Collection[Kind]
    _methods: ClassVar[Mapping[Kind, Callable[[Any, Any], None]]]

    def __init_subclass__(cls) -> None:
        methods = {name: each for name, each in vars(cls).items() if _takes_event(each) and not name.startswith("_")}
        if unknown := methods.keys() - EVENTS.keys() - {"read"}:
            raise TypeError(f"{cls.__name__} reads events that do not exist: {', '.join(sorted(unknown))}")
        cls._methods = {EVENTS[name]: each for name, each in methods.items() if name != "read"}
        cls.kinds = frozenset(cls._methods)

    def read(self, event: ObservedEvent) -> None:
        """Call the method of an event. The class of the event is in `kinds`."""
        self._methods[type(event)](self, event)


def _takes_event(value: object) -> bool:
    return getattr(getattr(value, "__code__", None), "co_varnames", ())[:2] == ("self", "event")
