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
"""At most ten refusals of a person are logged a minute. Further attempts are refused without a log line."""
SECURITY_LINES = 1_000
"""The most lines of the security log of one partition."""
_DAY, _HOUR = 86_400.0, 3600.0
PAIRED_AN_HOUR = 16
"""The most replies with a code at once, and in the hour afterwards. A single channel gets half of both."""
_LEAST_HOURS = 12
"""A day's share lasts at least so long. Together with the refill the share then lasts all day."""
_STRANGERS_A_SECOND = 3


def refusals(person: Person | None) -> Cell:
    """Return the rate of logging a person's refused attempts."""
    return Cell(name=f"refused/{person}", burst=_REFUSED_NOTED, period_seconds=_REFUSED_SECONDS)


def near_answers(name: str) -> Cell:
    """Return the rate of notes to a person about an unclear answer: once a minute, three at once."""
    return Cell(name=name, burst=3, period_seconds=180.0)


def questions(person: str, count: int) -> Cell:
    """Return the rate of questions to a person over all places: 20 in 15 minutes. `count`: the questions asked now."""
    name = hashlib.sha256(person.encode("utf-8", "surrogatepass")).hexdigest()
    return Cell(name=f"asked/{name}", burst=20, period_seconds=900.0, cost=count)


def once_a_minute(name: str) -> Cell:
    """Return the rate of a reply sent once a minute."""
    return Cell(name=name, burst=1, period_seconds=60.0)


def stranger_replies(
    person: Person, address: Address, share: Share, *, pairing: bool = False, asks: bool = False
) -> list[Cell]:
    """Return the rates of replies to strangers: by day, from `share`, and by second.

    `pairing`: adds hourly rates. Later hours of a day keep a part, and a flooded channel leaves half of the hour to the
    other channels. `asks`: the person asks for the own name, counted apart from the person's other replies.
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
    """Add a line to the security log, for a press outside any action's audit. `what`: the reason of the refusal.

    The log keeps the last lines, so no flood of presses fills the store.
    """
    named = str(person) if person else None
    line: Json = {"what": what, "person": named, "at": at.isoformat(), "conversation": conversation}
    transaction.cut.append(LogCut(log=keys.SECURITY, keep=SECURITY_LINES - 1))
    transaction.appends.append((keys.SECURITY, line))
