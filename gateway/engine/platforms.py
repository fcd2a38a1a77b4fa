"""The platforms of one process: begun, tried again, known to answer or not. One that fails holds back no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Self

import aiohttp

from channels import (
    AskfirstError,
    CanAskAgain,
    CanPoll,
    Channel,
    Json,
    Parsed,
    RateLimited,
    SendError,
    Way,
)
from gateway.engine.engine import Engine
from gateway.engine.polling import Poller
from gateway.observe import describe_error

__all__ = ["NotStarted", "Platforms"]

log = logging.getLogger("askfirst.platforms")

_AGAIN_SECONDS = 1.0
_START_SECONDS = 10.0


class NotStarted(AskfirstError):
    """A channel's platform could not be reached yet: what it sends is not taken, so that it is delivered again."""


class Platforms:
    """The channels that a process serves. `start` them, and `close` them when the engine has stopped."""

    def __init__(self, channels: Mapping[str, Channel], engine: Engine, ways: Mapping[str, Way]) -> None:
        """`ways`: how messages of each channel come in; the gateway's own page is in none."""
        self._channels, self._engine, self._ways = channels, engine, ways
        self._started: set[str] = set()
        self._delivering_once = {name for name, channel in channels.items() if isinstance(channel, CanAskAgain)}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, http: aiohttp.ClientSession) -> Self:
        """Begin with every platform at once; one that cannot be reached is tried again until it can.

        Raises MissingSetting for what a platform says is wrong.
        """
        channels = list(self._channels.values())
        begun = await asyncio.gather(*(self._start(channel, http) for channel in channels), return_exceptions=True)
        for refused in begun:
            if isinstance(refused, BaseException):
                await self.close()
                raise refused
        self._tasks = [asyncio.create_task(self._keep(channel, http)) for channel in channels]
        return self

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name, channel in self._channels.items():
            try:
                await channel.close()
            except Exception as error:  # noqa: BLE001 - a channel of another author's: the others are closed too
                log.error("%s could not be closed: %s", name, describe_error(error))

    def take(self, channel: Channel, parsed: Parsed) -> Awaitable[None]:
        """Store what a request held; see `Inbox.take`.

        Raises NotStarted while the platform was never reached, unless it delivers nothing a second time.
        """
        name = channel.name
        if name not in self._started and name in self._channels and name not in self._delivering_once:
            raise NotStarted(f"{name} is not started")
        return self._engine.inbox.take(channel, parsed)

    def answering(self) -> dict[str, Json]:
        """Channel -> whether its platform took this process's last call."""
        return {name: name not in self._engine.context.down for name in self._channels}

    async def _start(self, channel: Channel, http: aiohttp.ClientSession) -> float:
        """Seconds to wait before it is tried again; 0 once it is started."""
        down = self._engine.context.down
        try:
            async with asyncio.timeout(_START_SECONDS):
                await channel.start(http)
        except (SendError, TimeoutError) as error:
            if channel.name not in down:
                code = error.code if isinstance(error, SendError) else "no_answer"
                log.warning("%s cannot be reached (%s): it is tried again until it can", channel.name, code)
            down.add(channel.name)
            return max(_AGAIN_SECONDS, error.retry_after_seconds if isinstance(error, RateLimited) else 0.0)
        except (TypeError, AttributeError) as error:  # a library that is called in another way than it knows
            raise AskfirstError(
                f"{channel.name} does not fit an installed library ({describe_error(error)}): "
                "pip install --upgrade 'askfirst[all]'"
            ) from error
        if channel.name in down:
            log.warning("%s is reached again", channel.name)
        self._started.add(channel.name)
        down.discard(channel.name)
        return 0.0

    async def _keep(self, channel: Channel, http: aiohttp.ClientSession) -> None:
        wait = 0.0 if channel.name in self._started else _AGAIN_SECONDS
        while wait:
            await asyncio.sleep(wait)
            try:
                wait = await self._start(channel, http)
            except AskfirstError as error:  # a setting that the platform refuses, found out later than at the start
                log.error("%s does not start: %s", channel.name, error)
                return
        if self._ways.get(channel.name) != "polling":
            return
        if isinstance(channel, CanPoll):
            await Poller(self._engine.context, self._engine.inbox, channel).run()
        log.warning("%s cannot be polled: nothing comes in from it. Let its platform call a webhook", channel.name)
