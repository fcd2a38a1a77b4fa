"""A newer release brings what is stored on a server to its own format, while an older one is still running there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.store.errors import StoreRefused, StoreUnavailable
from gateway.store.redis import RedisStore, scripts
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key

MIGRATE = """
migrate(function()
  if redis.call('EXISTS', key('stuck')) == 1 then error('it cannot be done here') end
  for _, name in ipairs(redis.call('ZRANGE', key('names'), 0, -1)) do
    local value = redis.call('HGET', key('record', name), 'value')
    redis.call('HSET', key('record', name), 'value', (value:gsub('old', 'new')))
  end
  redis.call('INCR', key('migrated'))
end)
"""
"""What a release of format 3 might do."""
NEWEST = scripts.FORMAT + 1


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, driver_info=None, decode_responses=True) as redis:
        yield redis


@pytest.fixture
async def older(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    """A store of this release, with a record in each partition, that was opened before the newer one came."""
    store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    await store.open()
    for partition in PARTITIONS:
        await store.commit(Transaction(partition=partition, puts={"r": Put("old")}))
    yield store
    await store.close()


class Newer:
    """Processes of the next release, as far as their start: what they bring forward, and how."""

    def __init__(self, redis_url: str, prefix: str, directory: Path) -> None:
        self._where = redis_url, prefix
        (directory / "no_change.lua").write_text("migrate(function() end)")
        (directory / "to_newest.lua").write_text(MIGRATE)
        with pytest.MonkeyPatch.context() as release:
            release.setattr(scripts, "FORMAT", NEWEST)
            release.setattr(scripts, "_COMMON", (*scripts._COMMON, "migration"))
            steps = ("no_change", "to_newest")
            self._migrations = tuple(scripts.Script(str(directory / step), "") for step in steps)

    async def starts(self, processes: int = 1) -> None:
        url, prefix = self._where
        stores = [RedisStore(url, prefix=prefix) for _ in range(processes)]
        with pytest.MonkeyPatch.context() as release:
            release.setattr(scripts, "FORMAT", NEWEST)
            release.setattr(scripts, "STARTS", NEWEST)
            release.setattr(scripts, "MIGRATIONS", self._migrations)
            await asyncio.gather(*(store.open() for store in stores))
        await asyncio.gather(*(store.close() for store in stores))


@pytest.fixture
def newer(redis_url: str, prefix: str, tmp_path: Path) -> Newer:
    return Newer(redis_url, prefix, tmp_path)


async def test_three_processes_migrate_every_partition_once(
    older: RedisStore, newer: Newer, redis: Redis, prefix: str
) -> None:
    await newer.starts(processes=3)
    await newer.starts()
    bases = [Keys(prefix).base(partition) for partition in PARTITIONS]
    assert [await redis.get(f"{base}:migrated") for base in bases] == ["1"] * 16
    assert [await redis.hget(f"{base}:record:r", "value") for base in bases] == ['"new"'] * 16
    assert await redis.get(f"{prefix}:format") == str(NEWEST)


async def test_the_older_release_is_refused_and_writes_nothing_more(
    older: RedisStore, newer: Newer, redis_url: str, prefix: str
) -> None:
    await newer.starts()
    event = Incoming(conversation="c", event_ids=("e",), body={})
    for call in (
        older.accept([event]),
        older.commit(Transaction(partition="07", puts={"r": Put("old again")})),
        older.get([Key("07", "r")]),
        older.lease("w", ["turn", "action", "out"]),
        older.run_timers(),
        older.stats(),
    ):
        with pytest.raises(StoreUnavailable, match=r"newer release has brought .* stop this one, or update it"):
            await call
    with pytest.raises(StoreRefused, match=rf"format {NEWEST}.*newer release"):
        await RedisStore(redis_url, prefix=prefix).open()


async def test_stopped_migration_leaves_whole_partitions_and_resumes(
    older: RedisStore, newer: Newer, redis: Redis, prefix: str
) -> None:
    bases = [Keys(prefix).base(partition) for partition in PARTITIONS]
    await redis.set(f"{bases[7]}:stuck", 1)
    with pytest.raises(StoreUnavailable):
        await newer.starts()
    assert [await redis.get(f"{base}:migrated") for base in bases] == ["1"] * 7 + [None] * 9
    assert (await older.get([Key("08", "r")]))[Key("08", "r")].value == "old"
    with pytest.raises(StoreUnavailable, match="newer release"):
        await older.get([Key("06", "r")])
    await redis.delete(f"{bases[7]}:stuck")
    await newer.starts()
    assert [await redis.get(f"{base}:migrated") for base in bases] == ["1"] * 16
    assert await redis.get(f"{prefix}:format") == str(NEWEST)
