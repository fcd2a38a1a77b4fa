"""How fast a platform lets us send, kept by all instances together."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from channels import Address, Channel
from gateway.store.base import Cell, Store

__all__ = ["Pacing"]


class Pacing:
    """This process's part in it: whoever may send next to an account is found here, whether they may in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def wait(self, channel: Channel, address: Address) -> float:
        """Wait until the account may send once more, and count it; 0.

        When it is the place that may not, nothing is counted: seconds after which to ask again. An account is waited
        for in a queue, for all that is to be sent needs it: nobody would get on by asking again and again.
        """
        place, account = _place(channel, address), _account(channel, address)
        if account is None:
            return await self._store.take([place]) if place is not None else 0.0
        queue = self._queues.setdefault(account.name, asyncio.Lock())
        if not queue.locked() and not await self._store.take([account] if place is None else [account, place]):
            return 0.0
        if place is not None and (seconds := await self._store.take([place])):
            return seconds
        async with queue:
            seconds = -1.0
            while seconds:
                seconds = await self._store.take([account])
                await asyncio.sleep(seconds)
        return 0.0


def _account(channel: Channel, address: Address) -> Cell | None:
    per_second = channel.capabilities.pace.account_per_second
    if per_second is None:
        return None
    return Cell(name=f"pace/{address.channel}:{address.account}", burst=per_second, period_seconds=1.0)


def _place(channel: Channel, address: Address) -> Cell | None:
    """All threads of a place share its rate."""
    pace, name = channel.capabilities.pace, f"pace/{address.channel}:{address.account}:{address.place}"
    if address.group and pace.group_per_minute is not None:
        return Cell(name=name, burst=pace.group_per_minute, period_seconds=60.0)
    if pace.place_per_second is not None:
        burst = max(pace.place_per_second, 3.0)
        return Cell(name=name, burst=burst, period_seconds=burst / pace.place_per_second)
    return None
