"""Who waits for something hears when it came, from whichever process it came.

News travels by publish and subscribe. It may be lost with its connection, so a new connection is news of everything,
and whoever waits looks for himself now and then.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.store.redis.client import connecting, ended, unavailable

__all__ = ["EVERYTHING", "News"]

EVERYTHING: Final = b""
"""A topic whose followers hear of all others."""
_AGAIN_SECONDS: Final = 0.5
_BEAT_SECONDS: Final = 5.0
"""A connection that was silent for so long is asked whether it still lives."""


class News:
    """Listens on a channel where each message is a topic."""

    def __init__(self, url: str, channel: str) -> None:
        self._redis: Redis = Redis.from_url(url, **connecting(_BEAT_SECONDS))
        self._channel = channel
        self._followers: defaultdict[bytes, set[asyncio.Event]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None

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
        if self._listening is not None:
            await ended(self._listening)
        await self._redis.aclose()
        self.tell_all()

    @contextmanager
    def following(self, topics: Iterable[bytes]) -> Iterator[asyncio.Event]:
        """An event that is set by news of any of the topics."""
        heard = asyncio.Event()
        topics = set(topics)
        for topic in topics:
            self._followers[topic].add(heard)
        try:
            yield heard
        finally:
            for topic in topics:
                self._followers[topic].discard(heard)
                if not self._followers[topic]:
                    del self._followers[topic]

    def tell_all(self) -> None:
        for topic in self._followers:
            self._tell(topic)

    def _tell(self, topic: bytes) -> None:
        for heard in (*self._followers.get(topic, ()), *self._followers.get(EVERYTHING, ())):
            heard.set()

    async def _listen(self, begun: asyncio.Future[None]) -> None:
        while True:
            try:
                async with self._redis.pubsub() as subscription:
                    await subscription.subscribe(self._channel)
                    asked = False
                    while True:
                        message = await subscription.get_message(timeout=_BEAT_SECONDS)
                        if message is None:
                            if asked:
                                break  # nobody is there: connect anew
                            asked = True
                            await subscription.ping()
                            continue
                        asked = False
                        if message["type"] == "subscribe":
                            self.tell_all()
                            if not begun.done():
                                begun.set_result(None)
                        elif message["type"] == "message":
                            self._tell(message["data"])
            except (RedisError, OSError) as error:
                if not begun.done():
                    begun.set_exception(error)
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
