"""The record of the people of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self

from channels import Json

_MOST: Final = 500
"""The most people kept for a conversation: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleOf:
    """The people with messages in a conversation."""

    group: bool = False
    people: Mapping[str, str] = field(default_factory=dict)
    """Person -> the time of the first message, an ISO 8601 text."""

    @classmethod
    def from_json(cls, stored: Json) -> Self:
        """Return the people of a stored record. Empty without a readable record."""
        match stored:
            case {"group": bool(group), "people": dict(people)}:
                return cls(group=group, people={person: str(at) for person, at in people.items()})
        return cls()

    def with_person(self, person: str, at: datetime, *, group: bool) -> Self:
        """Return the people with another person added."""
        kept = [*self.people.items(), (person, at.isoformat())][-_MOST:]
        return replace(self, group=group, people=dict(kept))

    def to_json(self) -> Json:
        """Return the stored value."""
        return {"group": self.group, "people": dict(self.people)}
