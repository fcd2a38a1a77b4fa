"""Calls that travel together: what is asked while others are on their way goes with the next, in one round trip.

A process with many turns at once spends a third of the time on them this way. Each call stands alone: one that fails is
its caller's failure and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, cast

from gateway.store.errors import StoreUnavailable
from gateway.store.redis.client import Call, Client, whole

__all__ = ["AutoPipeline"]

_AT_ONCE: Final = 2
"""Round trips on their way at the same time: more of them would each carry less."""
_MOST: Final = 128
"""At most so many callers in one, so that it stays short."""

_Asked = tuple[Sequence[Call], "asyncio.Future[list[Any]]"]


class AutoPipeline:
    """Runs scripts for many callers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[_Asked] = deque()
        self._flying: set[asyncio.Task[None]] = set()

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """The answers to these calls. Raises StoreUnavailable when any of them failed.

        They go on though the caller gives up.
        """
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((calls, answer))
        if len(self._flying) < _AT_ONCE:
            self._flying.add(asyncio.create_task(self._fly()))
        return await answer

    async def ended(self) -> None:
        """Returns when nothing is on its way any more."""
        while self._flying:
            await asyncio.wait(self._flying)

    async def _fly(self) -> None:
        try:
            await self._carry()
        finally:
            self._flying.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _carry(self) -> None:
        while self._waiting:
            aboard = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
            try:
                answers = await self._client.each([call for calls, _ in aboard for call in calls])
            except Exception as error:  # noqa: BLE001 - nobody waits for ever
                for _, answer in aboard:
                    _settle(answer, error)
            else:
                rest = iter(answers)
                for calls, answer in aboard:
                    _settle(answer, list(islice(rest, len(calls))))


def _settle(answer: asyncio.Future[list[Any]], result: list[Any] | Exception) -> None:
    if answer.done():  # who asked has given up
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        return
    try:
        answer.set_result(whole(result))
    except StoreUnavailable as error:
        answer.set_exception(error)
