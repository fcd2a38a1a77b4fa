"""How often the same person is answered, and what of their refused tries is noted down."""

from __future__ import annotations

import hashlib
from datetime import datetime

from channels import Address, Json, Person
from gateway.limits import Share
from gateway.store.base import Cell

__all__ = ["near_answers", "once_a_minute", "refusals", "security_line", "strangers"]

_REFUSED_NOTED = 10
_REFUSED_SECONDS = 60.0
_DAY = 86_400.0
_STRANGERS_A_SECOND = 3
"""So many refused tries of one person within so many seconds are noted down; more are refused all the same."""


def refusals(person: Person | None) -> Cell:
    """How often one person's refused tries are noted down."""
    return Cell(name=f"refused/{person}", burst=_REFUSED_NOTED, period_seconds=_REFUSED_SECONDS)


def near_answers(name: str) -> Cell:
    """Return the rate at which somebody is told that their answer is not clear: once a minute, three at once."""
    return Cell(name=name, burst=3, period_seconds=180.0)


def once_a_minute(name: str) -> Cell:
    """Return the rate of an answer that is told once a minute."""
    return Cell(name=name, burst=1, period_seconds=60.0)


def strangers(person: Person, address: Address, share: Share, *, often: bool = False) -> list[Cell]:
    """Return the rates of replies to people who are not on the allow-list: a day, by the share, and a second.

    `often`: what they are told lets them in, so each is told it three times an hour.
    """
    if often:
        name = hashlib.sha256(f"person/{person}".encode()).hexdigest()
        share = Share(None, None, share.all)
        return [*strangers(person, address, share), Cell(name=f"strangers/hour/{name}", burst=3, period_seconds=3600.0)]
    place = f"{address.channel}:{address.account}:{address.place}"
    shares = ((f"person/{person}", share.person), (f"place/{place}", share.place), ("all", share.all))
    day = [
        Cell(name=f"strangers/{hashlib.sha256(name.encode()).hexdigest()}", burst=most, period_seconds=_DAY)
        for name, most in shares
        if most is not None
    ]
    return [*day, Cell(name="strangers/second", burst=_STRANGERS_A_SECOND, period_seconds=1.0)]


def security_line(what: str, person: Person | None, conversation: str, at: datetime) -> Json:
    """A line of the security log: a press that is no matter of any action's own audit."""
    return {"what": what, "person": str(person) if person else None, "at": at.isoformat(), "conversation": conversation}
