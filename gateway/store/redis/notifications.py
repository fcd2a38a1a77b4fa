"""Who waits for something hears when and in which partition it came, from whichever process it came.

Notifications travel by publish and subscribe. They may be lost with their connection, so a new connection is news of
everything, and whoever waits looks for himself now and then.
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

from gateway.store.redis.client import connecting, ended, unavailable
from gateway.store.redis.keys import PARTITIONS

__all__ = ["EVERYTHING", "Notifications", "Subscription"]

EVERYTHING: Final = b""
"""A topic whose followers hear of all others."""
_AGAIN_SECONDS: Final = 0.5
_BEAT_SECONDS: Final = 5.0
"""A connection that was silent for so long is asked whether it still lives."""


class Subscription:
    """What a follower heard of since it was asked last; at first it may be anything."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self._places: dict[str, float] | None = None

    def tell(self, place: str | None) -> None:
        """Notifications of this partition; None: of any."""
        if place is None:
            self._places = None
        elif self._places is not None:
            self._places.setdefault(place, time.monotonic())
        self._told.set()

    def wake(self) -> None:
        """Have who waits look at the time again."""
        self._told.set()

    def take(self) -> dict[str, float] | None:
        """Where something came since, and when that was first heard (time.monotonic()).

        None: anywhere, for news may have been lost.
        """
        places, self._places = self._places, {}
        self._told.clear()
        return places

    async def wait(self) -> None:
        """Until there is something to take that was not taken yet."""
        await self._told.wait()


class Notifications:
    """Listens on channels where each message is a partition and a topic."""

    def __init__(self, url: str, channel: str) -> None:
        self._redis: Redis = Redis.from_url(url, **connecting(_BEAT_SECONDS))
        self._channels = [channel]
        self._subscription: PubSub | None = None
        self._followers: defaultdict[bytes, set[Subscription]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._subscribing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises StoreUnavailable."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(begun))
        try:
            await begun
        except RedisError as error:
            raise unavailable(error) from error

    async def close(self) -> None:
        """Who still waits is woken."""
        for task in (self._subscribing, self._listening):
            if task is not None:
                await ended(task)
        await self._redis.aclose()
        self.tell_all()

    def follow(self, topics: Iterable[bytes]) -> Subscription:
        """Notifications of these topics, for as long as there is any."""
        heard = Subscription()
        for topic in topics:
            self._followers[topic].add(heard)
        return heard

    @contextmanager
    def following(self, topics: Iterable[bytes]) -> Iterator[Subscription]:
        """Notifications of these topics, for the length of a block."""
        topics = set(topics)
        heard = self.follow(topics)
        try:
            yield heard
        finally:
            for topic in topics:
                self._followers[topic].discard(heard)
                if not self._followers[topic]:
                    del self._followers[topic]

    @contextmanager
    def following_log(self, log: bytes) -> Iterator[Subscription]:
        """Notifications of this log, for the length of a block.

        Until somebody here follows one, news of logs does not reach this process; from then on that of all does.
        """
        if len(self._channels) == 1:
            self._channels.append(f"{self._channels[0]}:logs")
            if self._subscription is not None:
                self._subscribing = asyncio.create_task(self._subscribe(self._subscription))
        with self.following([log]) as heard:
            yield heard

    async def _subscribe(self, subscription: PubSub) -> None:
        """To the channel of logs as well. In a task of its own: redis-py swallows the cancellation of who waits."""
        with suppress(RedisError, OSError):  # whoever connects anew subscribes to both
            await subscription.subscribe(self._channels[-1])

    def tell_all(self) -> None:
        for topic in self._followers:
            self._tell(topic, None)

    def _tell(self, topic: bytes, place: str | None) -> None:
        for heard in (*self._followers.get(topic, ()), *self._followers.get(EVERYTHING, ())):
            heard.tell(place)

    async def _listen(self, begun: asyncio.Future[None]) -> None:
        while True:
            try:
                async with self._redis.pubsub() as subscription:
                    await self._hear(subscription, begun)
            except (RedisError, OSError) as error:
                if not begun.done():
                    begun.set_exception(error)
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
            finally:
                self._subscription = None

    async def _hear(self, subscription: PubSub, begun: asyncio.Future[None]) -> None:
        """Until nobody is there any more."""
        for channel in self._channels:  # one more may be added meanwhile
            await subscription.subscribe(channel)
        self._subscription, asked = subscription, False
        while True:
            message = await subscription.get_message(timeout=_BEAT_SECONDS)
            if message is None:
                if asked:
                    return
                asked = True
                await subscription.ping()
                continue
            asked = False
            if message["type"] == "subscribe":
                self.tell_all()
                if not begun.done():
                    begun.set_result(None)
            elif message["type"] == "message":
                told: bytes = message["data"]
                place = told[:2].decode("ascii", "replace")
                self._tell(told[2:], place if place in PARTITIONS else None)
