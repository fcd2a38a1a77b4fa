"""The bases of all events."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

__all__ = ["ObservedEvent", "RunEvent"]


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
