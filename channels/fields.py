"""The classification of a message's fields: harmless, spoiling, or unknown to this release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Judged: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""The names for `Message.spoiled_by` and for `Message.unknown_fields`."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The documented fields of a platform's messages. A field in neither set is unknown."""

    harmless: frozenset[str]
    """Fields of an ordinary message: a message with no other fields is words typed here to the bot."""
    spoiling: frozenset[str]
    """Fields of any other content: a quote, a share, a caption."""

    def judge(self, message: Mapping[str, object]) -> Judged:
        """Return the names of the spoiling fields of a message, and of the unknown fields."""
        if self.harmless.issuperset(message):  # nearly always
            return (), ()
        others = sorted(set(message) - self.harmless)
        return (
            tuple([name for name in others if name in self.spoiling and _says(message[name])]),
            tuple([name for name in others if name not in self.spoiling and message[name] not in (None, "")]),
        )


def _says(value: object) -> bool:
    """Return True if a spoiling field with this value differs in meaning from an absent field."""
    return value is not None and value is not False and value != "" and value != []
