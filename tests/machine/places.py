"""The store of a world. A test can move the store's time on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from redis import Redis

from gateway.store.errors import StoreUnavailable
from gateway.store.redis import RedisStore, scripts
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Clock

__all__ = ["OnRedis", "OnSqlite", "Places", "RelayStep"]

RelayStep = Literal["read", "accept", "remove"]
"""The steps of a hand-over: read in the partition of the commit, accept in the target partition, and remove."""


class OnSqlite:
    """A store in memory. Time passes only by jumps."""

    def __init__(self) -> None:
        self._nanoseconds = 1_800_000_000 * 10**9
        self.store = SqliteStore(":memory:")
        self.store._clock = Clock(self._tick, self._tick)

    def _tick(self) -> int:
        self._nanoseconds += 1000
        return self._nanoseconds

    def jump(self, seconds: float) -> None:
        self._nanoseconds += int(seconds * 10**9)

    def breaks(self, step: RelayStep, *, lost: bool) -> None:
        """Break no step: on SQLite the commit itself hands over."""

    def mend(self) -> None:
        """Repair no step: none is broken."""

    def forget(self) -> None:
        """Delete no key: the store was in memory."""


class OnRedis:
    """A store on a Redis server, under a prefix. A jump is added to real time."""

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix, self._redis = prefix, Redis.from_url(url)
        self.store = RedisStore(url, prefix=prefix, ack_seconds=5)

    def breaks(self, step: RelayStep, *, lost: bool) -> None:
        """Make the next hand-over end in this step, as if the process died; `lost`: right after the step."""
        steps = {"read": scripts.DUE_TIMERS, "accept": scripts.ACCEPT, "remove": scripts.FIRE_TIMERS}
        self.mend()
        server, run = self.store._server, self.store._server.run

        async def broken(script: Any, *arguments: Any) -> Any:
            if script is not steps[step]:
                return await run(script, *arguments)
            self.mend()
            if lost:
                await run(script, *arguments)
            raise StoreUnavailable("the process died")

        server.run = broken  # type: ignore[method-assign, assignment]

    def mend(self) -> None:
        """Let the next hand-over succeed."""
        vars(self.store._server).pop("run", None)

    def jump(self, seconds: float) -> None:
        self.store.offset_seconds += seconds
        bases = [Keys(self._prefix).base(partition) for partition in PARTITIONS]
        self._redis.eval(_LEASES_AGE, len(bases), *bases, int(seconds * 1_000_000))

    def forget(self) -> None:
        if made := list(self._redis.scan_iter(f"{self._prefix}:*", count=1000)):
            self._redis.delete(*made)
        self._redis.close()


Places = Callable[[], OnSqlite | OnRedis]
"""Return a new store."""

_LEASES_AGE = """
for _, base in ipairs(KEYS) do
  for kind, way in pairs({ turn = 'turn', memory = 'memory', action = 'action', out = 'out/test' }) do
    for _, index in ipairs({ 'held', 'idle' }) do
      local name = base .. ':' .. index .. ':' .. way
      for _, lane in ipairs(redis.call('ZRANGE', name, 0, -1)) do
        local lapses = redis.call('HINCRBY', base .. ':lane:' .. kind .. ':' .. lane, 'until', -ARGV[1])
        redis.call('ZADD', name, lapses, lane)
      end
    end
  end
end
"""
"""Move the end of every lease nearer by a number of microseconds."""
