"""Who may talk to the bot."""

from __future__ import annotations

from collections.abc import Sequence

from channels import Person

__all__ = ["PAIRING", "AllowList"]

PAIRING = "pairing"
"""The entry by which people who are not on the list are given a code."""


class AllowList:
    """The allow-list: persons as written (``telegram:123:456``), whole channels (``telegram:*``), everybody (``*``).

    `pairing`: who is not on it is given a code, by which they can be let in.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._everybody, self.pairing = "*" in entries, PAIRING in entries
        self._channels = frozenset(entry.removesuffix(":*") for entry in entries if entry.endswith(":*"))
        self._people = frozenset(entries)

    def __call__(self, person: Person | None) -> bool:
        """Return True for who may talk. What no person sent (a delivery report) always passes; a bot never does."""
        if person is None:
            return True
        return not person.is_bot and (self._everybody or person.channel in self._channels or self.names(person))

    def names(self, person: Person) -> bool:
        """Return True for a person whom an entry of their own names."""
        return not person.is_bot and str(person) in self._people
