"""A reader that keeps all observed events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from gateway.observe.events import ObservedEvent

__all__ = ["Told"]

E = TypeVar("E", bound=ObservedEvent)


@dataclass
class Told:
    """All events, in order."""

    events: list[ObservedEvent] = field(default_factory=list)
    kinds = None

    def read(self, event: ObservedEvent) -> None:
        self.events.append(event)

    def names(self, *, of: str = "") -> list[str]:
        """Return the names with this beginning, in order."""
        return [event.name for event in self.events if event.name.startswith(of)]

    def of_kind(self, kind: type[E]) -> list[E]:
        """Return the events of a class, in order."""
        return [event for event in self.events if isinstance(event, kind)]
