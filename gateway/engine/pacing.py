"""Pacing: the platform's rates of sending to an account and to a place, shared by all processes.

The store counts the calls. Within a process, all calls waiting for an account form a queue.
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
"""The wait of an optional call while other calls wait for the account."""


class Pacing:
    """The pacing of a process: a queue for each account with waiting calls, over the counts in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()
        self._ahead: dict[str, asyncio.Future[float]] = {}

    def ask_ahead(self, part_id: str, channel: Channel, address: Address) -> None:
        """Ask the store ahead for the permission of this part, while the part is being stored.

        `wait` uses the answer.
        """
        place, account = _place(channel, address), _account(channel, address)
        cells = _both(account, place)
        if cells and not self._is_waited_for(account):
            asked = self._ahead[part_id] = asyncio.ensure_future(self._store.acquire(cells))
            asked.add_done_callback(_silence)

    def forget(self, part_id: str) -> None:
        """Forget an early answer unused by `wait`.

        If the answer counted a call, another call goes out a little later.
        """
        self._ahead.pop(part_id, None)

    async def wait(self, part_id: str, channel: Channel, address: Address) -> float:
        """Wait until the account allows another call, count the call, and return 0.

        If the place does not allow the call, count no call, and return the seconds until the next request. Calls wait
        for an account in a queue: every call needs the account, and repeated requests would gain no call. The queue
        serves the places in turn, so a place with many parts delays another place by a single part.
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
        """Count an optional call and return 0. Otherwise count no call, and return the seconds until the next request.

        An optional call never overtakes a call waiting for the account.
        """
        place, account = _place(channel, address), _account(channel, address)
        if self._is_waited_for(account):
            return _SPARE_SECONDS
        cells = _both(account, place)
        return await self._store.acquire(cells) if cells else 0.0

    def _is_waited_for(self, account: Cell | None) -> bool:
        return account is not None and account.name in self._queues


class _Queue:
    """A lock serving names in turn: a waiter of a name, then a waiter of the next name."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn_of(self, name: str) -> AsyncIterator[None]:
        """Hold the lock during the body, after a wait for this name's turn."""
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
    """Mark the error of an early answer as seen: `wait` raises the error, so asyncio need not log the error."""
    if not asked.cancelled():
        asked.exception()


def _account(channel: Channel, address: Address) -> Cell | None:
    per_second = channel.capabilities.pace.account_per_second
    if per_second is None:
        return None
    return Cell(name=f"pace/{address.channel}:{address.account}", burst=per_second, period_seconds=1.0)


def _place(channel: Channel, address: Address) -> Cell | None:
    """Return the rate of a place, shared by all threads of the place. None without a rate of the platform."""
    pace, name = channel.capabilities.pace, f"pace/{address.channel}:{address.account}:{address.place}"
    if address.group and pace.group_per_minute is not None:
        return Cell(name=name, burst=pace.group_per_minute, period_seconds=60.0)
    if pace.place_per_second is not None:
        burst = max(pace.place_per_second, 3.0)
        return Cell(name=name, burst=burst, period_seconds=burst / pace.place_per_second)
    return None
