"""The allow-list: the people allowed to talk to the bot."""

from __future__ import annotations

from collections.abc import Sequence

from channels import Person

__all__ = ["PAIRING", "AllowList"]

PAIRING = "pairing"
"""The entry that gives a pairing code to people outside the list."""


class AllowList:
    """The allow-list: persons (``telegram:123:456``), whole channels (``telegram:*``), everybody (``*``).

    `pairing` is True when a person outside the list gets a code. With this code an operator can admit the person.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._everybody, self.pairing = "*" in entries, PAIRING in entries
        self._channels = frozenset(entry.removesuffix(":*") for entry in entries if entry.endswith(":*"))
        self._people = frozenset(entries)

    def __call__(self, person: Person | None) -> bool:
        """Return True if the sender of an event may talk to the bot.

        An event without a sender (a delivery report) always passes. A bot never does.
        """
        if person is None:
            return True
        return not person.is_bot and (self._everybody or person.channel in self._channels or self.names(person))

    def names(self, person: Person) -> bool:
        """Return True if an entry names exactly this person."""
        return not person.is_bot and str(person) in self._people
