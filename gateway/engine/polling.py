"""Polling: of all the processes that serve a bot, one asks a platform for what came in.

Which one is decided by a lease in the store: a record that goes by itself unless its holder writes it again. A second
poller would do no harm to what is stored (events are stored once, by their ids), but Telegram ends the older of two
requests: https://core.telegram.org/bots/api#getupdates.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from typing import Protocol

from channels import AskfirstError, CanPoll, Channel, Parsed, RateLimited, WebhookResponse
from gateway.engine.context import EngineContext
from gateway.engine.intake.inbox import Inbox
from gateway.observe import describe_error
from gateway.store.base import Conflict, Put, StoreError, Transaction

__all__ = ["Polled", "Poller"]

log = logging.getLogger("askfirst.platforms")

_AGAIN_SECONDS = 1.0
_BEATS = 3
"""How often a lease is renewed within its time."""
_LEAVES_WITHIN_SECONDS = 1.0


class Polled(Channel, CanPoll, Protocol):
    """A channel that can be polled."""


class Poller:
    """One channel's poller in one process."""

    def __init__(self, context: EngineContext, inbox: Inbox, channel: Polled) -> None:
        self._context, self._inbox, self._channel = context, inbox, channel
        self._key = context.key(channel.name, "poller")
        self._every = context.lease_seconds / _BEATS

    async def run(self) -> None:
        """Poll the channel while no other process does, until cancelled."""
        name, told = self._channel.name, ""
        while True:
            level, why = logging.INFO, "polled by another process: this one takes over when that ends"
            try:
                held = await self._write(free=True)
            except StoreError:
                held, level, why = False, logging.WARNING, "not polled: the store does not answer; it is tried again"
            if held:
                log.info("%s is polled by this process", name)
                told = ""
                await self._poll_while_held()
            elif told != (told := why):
                log.log(level, "%s is %s", name, why)
            await asyncio.sleep(self._every)

    async def _poll_while_held(self) -> None:
        polling = asyncio.create_task(self._poll())
        try:
            await self._keep()
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_LEAVES_WITHIN_SECONDS):
                    await self._leave()
        log.warning("%s is no longer polled by this process: its lease is lost", self._channel.name)

    async def _keep(self) -> None:
        """Renew the lease until it is lost, or may be."""
        sure_until = time.monotonic() + self._context.lease_seconds
        while time.monotonic() < sure_until:
            await asyncio.sleep(self._every)
            began = time.monotonic()
            with contextlib.suppress(StoreError, TimeoutError):  # it may answer before the lease has lapsed
                async with asyncio.timeout(sure_until - began):
                    if not await self._write(free=False):
                        return
                sure_until = began + self._context.lease_seconds

    async def _write(self, *, free: bool) -> bool:
        """Write the lease, which must be `free` or this process's own; False when it is neither. Raises StoreError."""
        store, name = self._context.store, self._key.name
        record = (await store.get([self._key]))[self._key]
        if record.value != self._context.worker and not (free and record.value is None):
            return False
        lease = Put(self._context.worker, ttl_seconds=self._context.lease_seconds)
        try:
            await store.commit(
                Transaction(partition=self._key.partition, expect={name: record.version}, puts={name: lease})
            )
        except Conflict:
            return False
        return True

    async def _leave(self) -> None:
        """Let another process take over at once. Raises StoreError."""
        record = (await self._context.store.get([self._key]))[self._key]
        if record.value == self._context.worker:
            name, version = self._key.name, record.version
            await self._context.store.commit(
                Transaction(partition=self._key.partition, expect={name: version}, deletes=[name])
            )

    async def _poll(self) -> None:
        """Store what the platform hands out; it is asked again for what was not stored."""
        name, context, told = self._channel.name, self._context, ""
        while True:
            wait, events = _AGAIN_SECONDS, self._channel.poll()
            try:
                async for several in events:
                    held = Parsed(events=several, response=WebhookResponse())
                    await self._inbox.take(self._channel, held, in_line=True)
                    context.down.discard(name)
                    told = ""
            except Exception as error:  # noqa: BLE001 - a channel of another author's: it is polled again
                says = str(error) if isinstance(error, AskfirstError) else describe_error(error)
                if told != (told := says):
                    log.warning("%s: %s", name, says)
                context.down.add(name)
                context.feed.publish("poll.failed", channel=name, error=type(error).__name__)
                if isinstance(error, RateLimited):
                    wait = max(wait, error.retry_after_seconds)
            finally:
                if isinstance(events, AsyncGenerator):
                    await events.aclose()
            await asyncio.sleep(wait)
