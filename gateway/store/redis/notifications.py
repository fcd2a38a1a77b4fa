"""Notifications between processes: the partition of a newly ready lane, or of a line written to a log.

Notifications use Redis publish and subscribe, and may be lost with the connection. So a new connection notifies every
subscription, and a waiter also looks from time to time.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from gateway.store.redis.client import connecting, end, unavailable
from gateway.store.redis.keys import PARTITIONS

EVERYTHING: Final = b""
"""A topic for the notifications of all topics."""
_AGAIN_SECONDS: Final = 0.5
_BEAT_SECONDS: Final = 5.0
"""A connection without a message for this time is checked with a ping."""


class Subscription:
    """The partitions notified since the last `take`. A new subscription counts as notified of all."""

    def __init__(self) -> None:
        self._notified = asyncio.Event()
        self._places: dict[str, float] | None = None

    def notify(self, place: str | None) -> None:
        """Add a partition; None: all."""
        if place is None:
            self._places = None
        elif self._places is not None:
            self._places.setdefault(place, time.monotonic())
        self._notified.set()

    def wake(self) -> None:
        """End the current `wait`, so that the waiter looks at the time again."""
        self._notified.set()

    def take(self) -> dict[str, float] | None:
        """Return the notified partitions and when each was first notified (time.monotonic()), and clear the list.

        None: any partition, because notifications may have been lost.
        """
        places, self._places = self._places, {}
        self._notified.clear()
        return places

    async def wait(self) -> None:
        """Wait for a notification after the last `take`."""
        await self._notified.wait()


class Notifications:
    """Listener on the channels of the store. A message is a partition and a topic."""

    def __init__(self, url: str, channel: str) -> None:
        self._redis: Redis = Redis.from_url(url, **connecting(_BEAT_SECONDS))
        self._channels = [channel]
        self._pubsub: PubSub | None = None
        self._subscriptions: defaultdict[bytes, set[Subscription]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._subscribing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and subscribe. Raises StoreUnavailable."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(begun))
        try:
            await begun
        except RedisError as error:
            raise unavailable(error) from error

    async def close(self) -> None:
        """Disconnect, and notify all subscriptions."""
        for task in (self._subscribing, self._listening):
            if task is not None:
                await end(task)
        await self._redis.aclose()
        self.notify_all()

    def subscribe(self, topics: Iterable[bytes]) -> Subscription:
        """Return a subscription to these topics, for the life of the process."""
        subscription = Subscription()
        for topic in topics:
            self._subscriptions[topic].add(subscription)
        return subscription

    @contextmanager
    def subscribed(self, topics: Iterable[bytes]) -> Iterator[Subscription]:
        """Subscribe to these topics for the length of a block."""
        topics = set(topics)
        subscription = self.subscribe(topics)
        try:
            yield subscription
        finally:
            for topic in topics:
                self._subscriptions[topic].discard(subscription)
                if not self._subscriptions[topic]:
                    del self._subscriptions[topic]

    @contextmanager
    def subscribed_to_log(self, log: bytes) -> Iterator[Subscription]:
        """Subscribe to this log for the length of a block.

        The first call of a process subscribes to the channel of the logs, used for the notifications of all logs.
        """
        if len(self._channels) == 1:
            self._channels.append(f"{self._channels[0]}:logs")
            if self._pubsub is not None:
                self._subscribing = asyncio.create_task(self._add_channel(self._pubsub))
        with self.subscribed([log]) as subscription:
            yield subscription

    async def _add_channel(self, pubsub: PubSub) -> None:
        """Subscribe to the channel of the logs. In a task, because redis-py swallows the caller's cancellation."""
        with suppress(RedisError, OSError):  # a new connection subscribes to both channels
            await pubsub.subscribe(self._channels[-1])

    def notify_all(self) -> None:
        """Notify every subscription of all partitions."""
        for topic in self._subscriptions:
            self._notify(topic, None)

    def _notify(self, topic: bytes, place: str | None) -> None:
        for subscription in (*self._subscriptions.get(topic, ()), *self._subscriptions.get(EVERYTHING, ())):
            subscription.notify(place)

    async def _listen(self, begun: asyncio.Future[None]) -> None:
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await self._receive(pubsub, begun)
            except (RedisError, OSError) as error:
                if not begun.done():
                    begun.set_exception(error)
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
            finally:
                self._pubsub = None

    async def _receive(self, pubsub: PubSub, begun: asyncio.Future[None]) -> None:
        """Receive messages until a ping is not answered."""
        for channel in self._channels:  # a channel may be added during this loop
            await pubsub.subscribe(channel)
        self._pubsub, pinged = pubsub, False
        while True:
            message = await pubsub.get_message(timeout=_BEAT_SECONDS)
            if message is None:
                if pinged:
                    return
                pinged = True
                await pubsub.ping()
                continue
            pinged = False
            if message["type"] == "subscribe":
                self.notify_all()
                if not begun.done():
                    begun.set_result(None)
            elif message["type"] == "message":
                data: bytes = message["data"]
                place = data[:2].decode("ascii", "replace")
                self._notify(data[2:], place if place in PARTITIONS else None)
