"""The platforms of a process: started, retried until reachable, polled. A failing platform delays no other.

Polling: a single process of a bot asks the platform for events. The process holds a lease for polling, stored as a
record. A second poller would store no event twice, because events are deduplicated by id. But Telegram ends the older
of two requests: https://core.telegram.org/bots/api#getupdates.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, Self

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
    WebhookResponse,
)
from gateway.engine.context import EngineContext
from gateway.engine.engine import Engine
from gateway.engine.intake.inbox import Inbox
from gateway.engine.record_leases import RecordLease
from gateway.logs import describe_error
from gateway.observe.events import PollFailed
from gateway.store.errors import StoreError
from gateway.stored import keys

log = logging.getLogger("askfirst.platforms")

_AGAIN_SECONDS = 1.0
_START_SECONDS = 10.0


class Platforms:
    """The channels served by a process. Call `start`, and `close` after the engine has stopped.

    A channel is `unreached` until the platform is reached, unless the platform does not repeat a delivery.
    """

    def __init__(self, channels: Mapping[str, Channel], engine: Engine, ways: Mapping[str, Way]) -> None:
        """`ways`: how each channel receives messages. The gateway's own page has no entry."""
        self._channels, self._engine, self._ways = channels, engine, ways
        self._started: set[str] = set()
        engine.context.unreached |= {name for name, one in channels.items() if not isinstance(one, CanAskAgain)}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, http: aiohttp.ClientSession) -> Self:
        """Start all platforms concurrently. An unreachable platform is retried until reached.

        Raises MissingSetting for a setting refused by a platform.
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
        """Stop polling and retrying, and close all channels."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name, channel in self._channels.items():
            try:
                await channel.close()
            except Exception as error:  # noqa: BLE001 - a channel of another author's: the others are closed too
                log.error("%s could not be closed: %s", name, describe_error(error))

    def answering(self) -> dict[str, Json]:
        """Return for each channel whether the platform accepted this process's last call."""
        return {name: name not in self._engine.context.down for name in self._channels}

    async def _start(self, channel: Channel, http: aiohttp.ClientSession) -> float:
        """Start a channel. Return the seconds until the next attempt, or 0 after a successful start."""
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
        except (TypeError, AttributeError) as error:  # the installed library has another interface
            raise AskfirstError(
                f"{channel.name} does not fit an installed library ({describe_error(error)}): "
                "pip install --upgrade 'askfirst[all]'"
            ) from error
        if channel.name in down:
            log.warning("%s is reached again", channel.name)
        self._started.add(channel.name)
        self._engine.context.unreached.discard(channel.name)
        down.discard(channel.name)
        return 0.0

    async def _keep(self, channel: Channel, http: aiohttp.ClientSession) -> None:
        """Retry the start of a channel until success, then poll the platform of a polled channel."""
        wait = 0.0 if channel.name in self._started else _AGAIN_SECONDS
        while wait:
            await asyncio.sleep(wait)
            try:
                wait = await self._start(channel, http)
            except AskfirstError as error:  # the platform refuses a setting, and could not say so at the start
                log.error("%s does not start: %s", channel.name, error)
                return
        if self._ways.get(channel.name) != "polling":
            return
        if isinstance(channel, CanPoll):
            await Poller(self._engine.context, self._engine.inbox, channel).run()
        log.warning("%s cannot be polled: nothing comes in from it. Let its platform call a webhook", channel.name)


class Polled(Channel, CanPoll, Protocol):
    """Channel with polling."""


class Poller:
    """The poller of a channel in a process."""

    def __init__(
        self, context: EngineContext, inbox: Inbox, channel: Polled, *, again_seconds: float = _AGAIN_SECONDS
    ) -> None:
        self._context, self._inbox, self._channel = context, inbox, channel
        self._again_seconds = again_seconds
        key = keys.key(context.store, channel.name, keys.poller)
        self._lease = RecordLease(context.store, key, context.worker, lease_seconds=context.lease_seconds)

    async def run(self) -> None:
        """Poll the channel while no other process does, until cancelled."""
        name, logged = self._channel.name, ""
        while True:
            level, why = logging.INFO, "polled by another process: this one takes over when that ends"
            try:
                held = await self._lease.take()
            except StoreError:
                held, level, why = False, logging.WARNING, "not polled: the store does not answer; it is tried again"
            if held:
                log.info("%s is polled by this process", name)
                logged = ""
                await self._poll_while_held()
            elif logged != (logged := why):
                log.log(level, "%s is %s", name, why)
            await asyncio.sleep(self._lease.every_seconds)

    async def _poll_while_held(self) -> None:
        polling = asyncio.create_task(self._poll())
        try:
            await self._lease.keep()
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            await self._lease.leave()
        log.warning("%s is no longer polled by this process: its lease is lost", self._channel.name)

    async def _poll(self) -> None:
        """Store the platform's events for ever. The platform is asked again for unstored events."""
        name, context, logged = self._channel.name, self._context, ""
        while True:
            wait, events = self._again_seconds, self._channel.poll()
            try:
                async for several in events:
                    held = Parsed(events=several, response=WebhookResponse())
                    await self._inbox.accept(self._channel, held, in_line=True)
                    context.down.discard(name)
                    logged = ""
            except Exception as error:  # noqa: BLE001 - the channel may be another author's
                says = str(error) if isinstance(error, AskfirstError) else describe_error(error)
                if logged != (logged := says):
                    log.warning("%s: %s", name, says)
                context.down.add(name)
                context.events.tell_now(PollFailed, channel=name, error=type(error).__name__)
                if isinstance(error, RateLimited):
                    wait = max(wait, error.retry_after_seconds)
            finally:
                if isinstance(events, AsyncGenerator):
                    await events.aclose()
            await asyncio.sleep(wait)
