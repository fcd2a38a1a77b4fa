"""The bases of all events, and the clock of their durations."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import Any, ClassVar

__all__ = ["ObservedEvent", "RunEvent", "milliseconds_since"]


class ObservedEvent:
    """An event. Each has a `name`."""

    __slots__ = ()
    name: ClassVar[str]

    def values(self) -> dict[str, Any]:
        """Return the fields by name, in the order in which they are declared."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


@dataclass(slots=True)
class RunEvent(ObservedEvent):
    """An event of one run."""

    run_id: str


def milliseconds_since(began: float) -> float:
    """Return the duration of an event: the milliseconds since `began`, by the event loop's clock."""
    return (asyncio.get_running_loop().time() - began) * 1000
