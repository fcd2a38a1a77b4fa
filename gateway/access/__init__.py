"""Who may talk to the bot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from channels import Person

__all__ = ["Allowed", "allow"]

Allowed: TypeAlias = Callable[[Person | None], bool]


def allow(entries: Sequence[str]) -> Allowed:
    """The allow-list: persons as written (``telegram:123:456``), whole channels (``telegram:*``), everybody (``*``).

    What no person sent (a delivery report) always passes; a bot never does.
    """
    everybody = "*" in entries
    channels = frozenset(entry.removesuffix(":*") for entry in entries if entry.endswith(":*"))
    people = frozenset(entries)

    def allowed(person: Person | None) -> bool:
        if person is None:
            return True
        return not person.is_bot and (everybody or person.channel in channels or str(person) in people)

    return allowed
