"""The allow-list: the people allowed to talk to the bot."""

from __future__ import annotations

from collections.abc import Sequence

from channels import Person

__all__ = ["PAIRING", "AllowList"]

PAIRING = "pairing"
"""The entry that gives a pairing code to people outside the list."""


class AllowList:
    """The allow-list: persons (``telegram:123:456``), whole channels (``telegram:*``), everybody (``*``).

    ``webchat:site:*`` are the logged-in people of the web chat.

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
        if person.is_bot:
            return False
        return self._everybody or person.channel in self._channels or self._has_login(person) or self.names(person)

    def _has_login(self, person: Person) -> bool:
        """Return True for a person of the web chat if an entry admits all people with a login, or all without."""
        return person.channel == "webchat" and f"webchat:{person.account}" in self._channels

    def names(self, person: Person) -> bool:
        """Return True if an entry names exactly this person."""
        return not person.is_bot and str(person) in self._people
