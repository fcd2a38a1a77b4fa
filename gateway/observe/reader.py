"""The readers inside the gateway: the log, the feed, the metrics, the spans and the trace of a run."""

from __future__ import annotations

import inspect
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
    """A reader with one method for each event, of the event's name: `turn_end(self, event)`.

    Raises TypeError at the definition of a method for an unknown event, or of an async method.
    """

    kinds: Collection[Kind]
    _methods: ClassVar[Mapping[Kind, Callable[[Any, Any], None]]]

    def __init_subclass__(cls) -> None:
        for name, each in vars(cls).items():
            if inspect.isfunction(each) and not name.startswith("_") and _takes_event(each) and name != "read":
                if name not in EVENTS:
                    raise TypeError(f"{cls.__name__}.{name} reads an event that does not exist")
                if inspect.iscoroutinefunction(each):
                    raise TypeError(f"{cls.__name__}.{name} is async: a reader never waits")
        found = {kind: getattr(cls, name, None) for name, kind in EVENTS.items()}
        cls._methods = {kind: each for kind, each in found.items() if each is not None}
        cls.kinds = frozenset(cls._methods)

    def read(self, event: ObservedEvent) -> None:
        """Call the method of an event of the `kinds`."""
        self._methods[type(event)](self, event)


def _takes_event(function: Callable[..., object]) -> bool:
    return list(inspect.signature(function).parameters)[1:] == ["event"]
