"""Pacing: the rates at which a platform allows sending to an account and to a place, shared by all processes.

The store counts. Within one process, the calls that wait for an account stand in one queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from channels import Address, Channel
from gateway.store.base import Store
from gateway.store.types import Cell

_SPARE_SECONDS = 1.0
"""The wait of a call that may be left out, while others wait for its account."""


class Pacing:
    """The pacing of one process: a queue for each account that calls wait for, over the counts in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()
        self._ahead: dict[str, asyncio.Future[float]] = {}

    def ask_ahead(self, part_id: str, channel: Channel, address: Address) -> None:
        """Ask the store early, while the part is being stored, the question that `wait` will have for this part."""
        place, account = _place(channel, address), _account(channel, address)
        cells = _both(account, place)
        if cells and not self._is_waited_for(account):
            asked = self._ahead[part_id] = asyncio.ensure_future(self._store.acquire(cells))
            asked.add_done_callback(_silence)

    def forget(self, part_id: str) -> None:
        """Forget an early answer that no `wait` will use. If it counted a call, another one goes out a little later."""
        self._ahead.pop(part_id, None)

    async def wait(self, part_id: str, channel: Channel, address: Address) -> float:
        """Wait until the account allows one more call, count the call, and return 0.

        If the place does not allow it, count nothing, and return the seconds after which to ask again. An account is
        waited for in a queue, since every call needs it and repeated asking would gain no call. The queue serves the
        places in turn, so that a place with many parts delays another place by one part only.
        """
        place, account = _place(channel, address), _account(channel, address)
        cells = _both(account, place)
        if (asked := self._ahead.pop(part_id, None)) is not None:
            seconds = await asked
        elif cells and self._is_waited_for(account):
            seconds = math.inf
        else:
            seconds = await self._store.acquire(cells) if cells else 0.0
        if not seconds or account is None:
            return seconds
        if place is not None and (seconds := await self._store.acquire([place])):
            return seconds
        async with self._queues.setdefault(account.name, _Queue()).turn_of(f"{address.place}"):
            seconds = -1.0
            while seconds:
                seconds = await self._store.acquire([account])
                await asyncio.sleep(seconds)
        return 0.0

    async def take_spare(self, channel: Channel, address: Address) -> float:
        """Count a call that may be left out, and return 0, or the seconds after which to ask again: nothing is counted.

        It never goes before a call that waits for the account.
        """
        place, account = _place(channel, address), _account(channel, address)
        if self._is_waited_for(account):
            return _SPARE_SECONDS
        cells = _both(account, place)
        return await self._store.acquire(cells) if cells else 0.0

    def _is_waited_for(self, account: Cell | None) -> bool:
        return account is not None and account.name in self._queues


class _Queue:
    """A lock that serves names in turn: one waiter of a name, then one of the next name."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn_of(self, name: str) -> AsyncIterator[None]:
        """Hold the lock during the body, once it is this name's turn."""
        if self._held:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(name, deque()).append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._release()
                raise
        self._held = True
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        while self._waiting:
            name, waiters = self._waiting.popitem(last=False)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[name] = waiters
            if not waiter.done():
                waiter.set_result(None)
                return
        self._held = False


def _both(account: Cell | None, place: Cell | None) -> list[Cell]:
    return [cell for cell in (account, place) if cell is not None]


def _silence(asked: asyncio.Future[float]) -> None:
    """Mark the error of an early answer as seen: `wait` raises it, and asyncio need not log it."""
    if not asked.cancelled():
        asked.exception()


def _account(channel: Channel, address: Address) -> Cell | None:
    per_second = channel.capabilities.pace.account_per_second
    if per_second is None:
        return None
    return Cell(name=f"pace/{address.channel}:{address.account}", burst=per_second, period_seconds=1.0)


def _place(channel: Channel, address: Address) -> Cell | None:
    """Return the rate of a place, which all its threads share. None if the platform has none."""
    pace, name = channel.capabilities.pace, f"pace/{address.channel}:{address.account}:{address.place}"
    if address.group and pace.group_per_minute is not None:
        return Cell(name=name, burst=pace.group_per_minute, period_seconds=60.0)
    if pace.place_per_second is not None:
        burst = max(pace.place_per_second, 3.0)
        return Cell(name=name, burst=burst, period_seconds=burst / pace.place_per_second)
    return None
