"""Rate limits of the gateway's own replies and of the security log."""

from __future__ import annotations

import hashlib
import math
from datetime import datetime

from channels import Address, Json, Person
from gateway.config.limits import Share
from gateway.store.transaction import LogCut, Transaction
from gateway.store.types import Cell
from gateway.stored import keys

_REFUSED_NOTED = 10
_REFUSED_SECONDS = 60.0
"""Refused attempts of one person within some seconds that are logged. More are refused all the same."""
SECURITY_LINES = 1_000
"""The most lines of the security log of one partition."""
_DAY, _HOUR = 86_400.0, 3600.0
PAIRED_AN_HOUR = 16
"""The most replies with a code at once, and in the hour after these. Half of both are for one channel."""
_LEAST_HOURS = 12
"""A day's share lasts at least so long. Together with its refill it then lasts all day."""
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


def stranger_replies(
    person: Person, address: Address, share: Share, *, pairing: bool = False, asks: bool = False
) -> list[Cell]:
    """Return the rates of replies to strangers: a day, by the share, and a second.

    `pairing`: the rate of an hour leaves the later hours of a day their part, and other channels than a flooded one
    half of it. `asks`: the person asks for their own name, which is counted apart from their other replies.
    """
    what, place = "asks/" if asks else "", f"{address.channel}:{address.account}:{address.place}"
    rates = [(f"{what}person/{person}", share.person, _DAY), ("all", share.all, _DAY)]
    if pairing:
        hour = min(PAIRED_AN_HOUR, math.ceil((share.all or _DAY) / _LEAST_HOURS))
        rates += [("hour", hour, _HOUR), (f"hour/{address.channel}", math.ceil(hour / 2), _HOUR)]
    elif not asks:
        rates.append((f"place/{place}", share.place, _DAY))
    cells = [
        Cell(name=f"strangers/{hashlib.sha256(name.encode()).hexdigest()}", burst=most, period_seconds=seconds)
        for name, most, seconds in rates
        if most is not None
    ]
    return [*cells, Cell(name="strangers/second", burst=_STRANGERS_A_SECOND, period_seconds=1.0)]


def note_refusal(transaction: Transaction, what: str, person: Person | None, conversation: str, at: datetime) -> None:
    """Add a line to the security log, for a press that belongs to no action's audit. `what`: why it was refused.

    The log keeps its last lines, so that no flood of presses fills the store.
    """
    named = str(person) if person else None
    line: Json = {"what": what, "person": named, "at": at.isoformat(), "conversation": conversation}
    transaction.cut.append(LogCut(log=keys.SECURITY, keep=SECURITY_LINES - 1))
    transaction.appends.append((keys.SECURITY, line))
