"""Reservations of budgets: the estimated usage of running model calls, until the usage is booked.

Concurrent calls checked against the booked usage alone exceed a budget several times over. So a turn reserves the
estimated usage of each call under the conversation, before making the call. A call is made when the booked usage and
all earlier reservations are below the budget, and waits otherwise. A budget is exceeded by at most one estimate.

The reservations of a holder, a person or the bot, are a single record, in order of creation. The concurrent turns of a
process write the record together. A reservation of a dead process is replaced by the process taking over the turn, and
lapses after the time limit of the call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple, Self

from channels import Json
from gateway.config.limits import Unit
from gateway.engine.clock import StoreClock
from gateway.providers.base import Usage
from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys

_LOOK_SECONDS: Final = 0.5
"""The longest wait before reading the reservations again. The end of another process's reservation is not notified."""


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of usage, as counted by budgets."""

    tokens: int = 0
    usd: float = 0.0

    @classmethod
    def of(cls, usage: Usage) -> Self:
        """Return the amount of a usage. Tokens of unknown price have the price assumed by budgets."""
        return cls(usage.total_tokens, usage.counted_usd)

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.usd + other.usd)

    def in_unit(self, unit: Unit) -> float:
        """Return the amount in the unit of a budget."""
        return self.tokens if unit == "tokens" else self.usd


class _Reserved(NamedTuple):
    lane: str
    amount: Amount
    until: float
    """The end of the reservation, in seconds since 1970."""

    def to_json(self) -> Json:
        return [self.lane, self.amount.tokens, self.amount.usd, self.until]


@dataclass(slots=True)
class _Holder:
    """The reservations of a holder, as known to this process."""

    changes: dict[str, _Reserved | None] = field(default_factory=dict)
    """Conversation -> a new reservation, not written yet. None: the reservation is removed."""
    lanes: set[str] = field(default_factory=set)
    """The conversations of this process with a reservation."""
    reserved: Sequence[_Reserved] = ()
    """All reservations, as last written by this process."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and then replaced, when a reservation of this process has ended."""


class Reservations:
    """The reservations of the turns of one process."""

    def __init__(self, store: Store, clock: StoreClock) -> None:
        self._store, self._clock = store, clock
        self._holders: dict[str, _Holder] = {}

    async def put(self, holder: str, lane: str, amount: Amount, seconds: float) -> None:
        """Set the reservation of a conversation for these seconds. A replaced reservation keeps the place in the order.

        Raises StoreError.
        """
        known = self._holders.setdefault(holder, _Holder())
        known.lanes.add(lane)
        until = (await self._clock.now()).timestamp() + seconds
        await self._change(holder, known, lane, _Reserved(lane, amount, until))

    async def drop(self, holder: str, lane: str) -> None:
        """Remove the reservation of a conversation. Raises StoreError."""
        known = self._holders.setdefault(holder, _Holder())
        known.lanes.discard(lane)
        try:
            await self._change(holder, known, lane, None)
        finally:
            known.freed.set()
            known.freed = asyncio.Event()
            if not known.lanes and not known.changes:
                self._holders.pop(holder, None)

    def before(self, holder: str, lane: str) -> Amount:
        """Return the sum of the reservations before the conversation's own, as last written."""
        known = self._holders.get(holder)
        reserved = known.reserved if known is not None else ()
        return sum((each.amount for each in takewhile(lambda one: one.lane != lane, reserved)), Amount())

    async def wait(self, holder: str) -> None:
        """Wait until a reservation of this process has ended, for half a second at most."""
        freed = self._holders.setdefault(holder, _Holder()).freed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await freed.wait()

    async def _change(self, holder: str, known: _Holder, lane: str, reserved: _Reserved | None) -> None:
        known.changes[lane] = reserved
        async with known.writing:
            if lane in known.changes:  # else it was written with another one
                await self._write(holder, known)

    async def _write(self, holder: str, known: _Holder) -> None:
        """Write all unwritten changes of a holder. A replaced reservation keeps the place in the order."""
        key = keys.key(self._store, holder, keys.reserved)
        while True:
            record = (await self._store.get([key]))[key]
            now, changes = (await self._clock.now()).timestamp(), dict(known.changes)
            after = {**{each.lane: each for each in _going(record.value, now)}, **changes}
            known.reserved = [each for each in after.values() if each is not None]
            transaction = Transaction(partition=key.partition, expect={key.name: record.version})
            if known.reserved:
                ttl_seconds = max(each.until for each in known.reserved) - now
                transaction.puts[key.name] = Put([each.to_json() for each in known.reserved], ttl_seconds)
            elif record.version:
                transaction.deletes.append(key.name)
            with contextlib.suppress(Conflict):  # another process wrote between
                await self._store.commit(transaction)
                break
        known.changes = {lane: each for lane, each in known.changes.items() if each is not changes.get(lane, known)}


def _going(value: Json, now: float) -> list[_Reserved]:
    """Return the reservations of a record that have not lapsed. An unreadable reservation counts as lapsed."""
    found = []
    for line in value if isinstance(value, list) else ():
        match line:
            case [str(lane), int(tokens), int() | float() as usd, int() | float() as until] if until > now:
                found.append(_Reserved(lane, Amount(tokens, float(usd)), float(until)))
    return found
