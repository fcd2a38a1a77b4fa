"""Calls to the server, and what its failures mean.

Nothing is repeated here: a call whose answer was lost may have taken effect, and only its caller can find out. redis-py
by itself would repeat it ten times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import TimeoutError as NoAnswer

from gateway.store.base import StoreUnavailable
from gateway.store.redis.scripts import Script

__all__ = ["Call", "Client", "Value", "connecting", "unavailable"]

Value = str | bytes | int | float
Call = tuple[Script, str, Sequence[Value]]
"""A script, the base of the partition's keys, and its arguments."""


def connecting(timeout_seconds: float) -> dict[str, Any]:
    """How a connection behaves."""
    return {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,  # looking up its own version reads files in the event loop
    }


class Client:
    """A pool of connections to one server, on which no call takes longer than `timeout_seconds`."""

    def __init__(self, url: str, *, timeout_seconds: float, connections: int) -> None:
        self._timeout_seconds = timeout_seconds
        self._pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=timeout_seconds,
            **connecting(timeout_seconds),
        )
        self.redis = Redis(connection_pool=self._pool)

    async def close(self) -> None:
        await self.redis.aclose()
        await self._pool.disconnect()

    async def command(self, *words: Value) -> Any:
        """Raises StoreUnavailable."""
        return (await self._execute([words]))[0]

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts, each for itself, in one round trip. Raises StoreUnavailable when any of them failed."""
        answers = await self._execute([("EVALSHA", script.sha, 1, base, *rest) for script, base, rest in calls])
        unknown = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:  # the server was restarted, or somebody flushed its scripts: these did not run
            texts = {calls[number][0].text for number in unknown}
            await self._execute([("SCRIPT", "LOAD", text) for text in texts])
            again = await self._execute(
                [("EVALSHA", script.sha, 1, base, *rest) for script, base, rest in (calls[n] for n in unknown)]
            )
            for number, answer in zip(unknown, again, strict=True):
                answers[number] = answer
        for answer in answers:
            if isinstance(answer, RedisError):
                raise unavailable(answer) from answer
        return answers

    async def _execute(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                pipe = self.redis.pipeline(transaction=False)
                for words in commands:
                    pipe.execute_command(*words)
                answers: list[Any] = await pipe.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            await self._pool.disconnect(inuse_connections=False)  # the next call asks for the address anew
        return answers


def unavailable(error: Exception) -> StoreUnavailable:
    """What a failure of the server means to who called; its own words may quote what we sent, so they are not told."""
    match error:
        case OutOfMemoryError():
            why = "its memory is full: raise maxmemory, or let work finish"
        case ReadOnlyError():
            why = "it is a replica and takes no writes: point ASKFIRST_STORE at the primary"
        case BusyLoadingError():
            why = "it is still loading its data"
        case AuthenticationError() | AuthorizationError() | NoPermissionError():
            why = "it refuses the user or password, or does not let that user do this: check ASKFIRST_STORE"
        case TimeoutError() | NoAnswer():
            why = "it did not answer in time"
        case _:
            why = type(error).__name__
    return StoreUnavailable(f"Redis cannot be used now: {why}")
