"""Polling: one of the processes that serve a bot asks the platform for its events.

The process holds a lease for it, which is a record of the store. A second poller would store no event twice, because
events are deduplicated by their ids. But Telegram ends the older of two requests:
https://core.telegram.org/bots/api#getupdates.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Protocol

from channels import AskfirstError, CanPoll, Channel, Parsed, RateLimited, WebhookResponse
from gateway.engine.context import EngineContext
from gateway.engine.intake.inbox import Inbox
from gateway.engine.record_leases import RecordLease
from gateway.logs import describe_error
from gateway.observe.events import PollFailed
from gateway.store.errors import StoreError
from gateway.stored import keys

__all__ = ["Polled", "Poller"]

log = logging.getLogger("askfirst.platforms")

_AGAIN_SECONDS = 1.0


class Polled(Channel, CanPoll, Protocol):
    """Channel that can be polled."""


class Poller:
    """The poller of one channel in one process."""

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
        """Store the platform's events for ever. The platform is asked again for events that were not stored."""
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
