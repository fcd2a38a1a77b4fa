"""Rate limits of the gateway's own replies and of the security log."""

from __future__ import annotations

import hashlib
from datetime import datetime

from channels import Address, Json, Person
from gateway.limits import Share
from gateway.store.transaction import LogCut, Transaction
from gateway.store.types import Cell
from gateway.stored import keys

_REFUSED_NOTED = 10
_REFUSED_SECONDS = 60.0
"""Refused attempts of one person within some seconds that are logged. More are refused all the same."""
SECURITY_LINES = 1_000
"""The most lines of the security log of one partition."""
_DAY = 86_400.0
_STRANGERS_A_SECOND = 3


def refusals(person: Person | None) -> Cell:
    """Return the rate at which one person's refused attempts are logged."""
    return Cell(name=f"refused/{person}", burst=_REFUSED_NOTED, period_seconds=_REFUSED_SECONDS)


def near_answers(name: str) -> Cell:
    """Return the rate at which a person is told that their answer is not clear: once a minute, three at once."""
    return Cell(name=name, burst=3, period_seconds=180.0)


def questions(person: str, count: int) -> Cell:
    """Return the rate of questions to one person over all places: 20 in 15 minutes. `count` are asked at once."""
    name = hashlib.sha256(person.encode("utf-8", "surrogatepass")).hexdigest()
    return Cell(name=f"asked/{name}", burst=20, period_seconds=900.0, cost=count)


def once_a_minute(name: str) -> Cell:
    """Return the rate of a reply that is sent once a minute."""
    return Cell(name=name, burst=1, period_seconds=60.0)


def stranger_replies(person: Person, address: Address, share: Share, *, often: bool = False) -> list[Cell]:
    """Return the rates of replies to strangers: a day, by the share, and a second.

    `often`: the reply may get them admitted, so each person gets it three times an hour.
    """
    if often:
        name = hashlib.sha256(f"person/{person}".encode()).hexdigest()
        share = Share(None, None, share.all)
        an_hour = Cell(name=f"strangers/hour/{name}", burst=3, period_seconds=3600.0)
        return [*stranger_replies(person, address, share), an_hour]
    place = f"{address.channel}:{address.account}:{address.place}"
    shares = ((f"person/{person}", share.person), (f"place/{place}", share.place), ("all", share.all))
    day = [
        Cell(name=f"strangers/{hashlib.sha256(name.encode()).hexdigest()}", burst=most, period_seconds=_DAY)
        for name, most in shares
        if most is not None
    ]
    return [*day, Cell(name="strangers/second", burst=_STRANGERS_A_SECOND, period_seconds=1.0)]


def note_refusal(transaction: Transaction, what: str, person: Person | None, conversation: str, at: datetime) -> None:
    """Add a line to the security log, for a press that belongs to no action's audit. `what`: why it was refused.

    The log keeps its last lines, so that no flood of presses fills the store.
    """
    named = str(person) if person else None
    line: Json = {"what": what, "person": named, "at": at.isoformat(), "conversation": conversation}
    transaction.cut.append(LogCut(log=keys.SECURITY, keep=SECURITY_LINES - 1))
    transaction.appends.append((keys.SECURITY, line))
