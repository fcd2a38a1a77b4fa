"""The store for many processes: a Redis server, 7.0 or later."""

from gateway.store.redis.store import RedisStore

__all__ = ["RedisStore"]
