"""Automatic pipelining: the calls that are made during a round trip are sent together in the next one.

A process with many turns at once spends a third of the time on its calls this way. A call that fails is an error of its
own caller alone.
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
"""The most round trips at the same time. With more, each would carry fewer calls."""
_MOST: Final = 128
"""The most callers of one round trip, so that it stays short."""

_Request = tuple[Sequence[Call], "asyncio.Future[list[Any]]"]


class AutoPipeline:
    """Runs the scripts of many callers in shared round trips."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[_Request] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run these calls, and return their answers. Raises StoreUnavailable when any of them failed.

        They are completed even if the caller is cancelled.
        """
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((calls, answer))
        if len(self._running) < _AT_ONCE:
            self._running.add(asyncio.create_task(self._run()))
        return await answer

    async def drain(self) -> None:
        """Wait until no round trip is running."""
        while self._running:
            await asyncio.wait(self._running)

    async def _run(self) -> None:
        try:
            await self._carry()
        finally:
            self._running.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _carry(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
            try:
                answers = await self._client.each([call for calls, _ in batch for call in calls])
            except Exception as error:  # noqa: BLE001 - every caller gets an answer
                for _, answer in batch:
                    _settle(answer, error)
            else:
                rest = iter(answers)
                for calls, answer in batch:
                    _settle(answer, list(islice(rest, len(calls))))


def _settle(answer: asyncio.Future[list[Any]], result: list[Any] | Exception) -> None:
    if answer.done():  # its caller was cancelled
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        return
    try:
        answer.set_result(whole(result))
    except StoreUnavailable as error:
        answer.set_exception(error)
