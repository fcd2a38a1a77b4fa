"""Events between two partitions: a process dying in the middle loses no event, and repeats none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.store.errors import StoreUnavailable
from gateway.store.redis import RedisStore
from gateway.store.redis.connection import Server
from gateway.store.redis.scripts import Script
from gateway.store.transaction import Transaction
from gateway.store.types import Incoming, Key
from tests.store import worker as script
from tests.store.redis_server import RedisServer
from tests.store.test_kill import working

FIRST = datetime(2026, 11, 1, tzinfo=UTC)


async def opened(url: str, prefix: str) -> RedisStore:
    store = RedisStore(url, prefix=prefix, ack_seconds=5)
    await store.open()
    return store


def elsewhere(store: RedisStore, source: str) -> str:
    """A conversation of another partition."""
    names = (f"to {number}" for number in range(100))
    return next(name for name in names if store.partition(name) != store.partition(source))


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("answered", [True, False])
async def test_process_dying_on_the_way_loses_no_event(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, steps: int, answered: bool
) -> None:
    """The process dies in a call: before the server gets the call, or before the answer."""
    dying, other = await opened(redis_url, prefix), await opened(redis_url, prefix)
    target, left = elsewhere(dying, "from"), steps
    run = Server.run

    async def dies(self: Server, script: Script, partitions: Sequence[str], *arguments: Any) -> list[Any]:
        nonlocal left
        left -= 1
        if left < 0 and not (answered and left == -1):
            raise StoreUnavailable("dead")
        answer = await run(self, script, partitions, *arguments)
        if left < 0:
            raise StoreUnavailable("dead")
        return answer

    event = Incoming(conversation=target, event_ids=("vote 1",), body={"n": 1}, stamp=FIRST)
    transaction = Transaction(partition=dying.partition("from"), hand_over=[event], appends=[("log", "handed")])
    with monkeypatch.context() as patch:
        patch.setattr(Server, "run", dies)
        try:
            await dying.commit(transaction)
            acknowledged = True
        except StoreUnavailable:
            acknowledged = False
    committed = bool(await other.read(_log(other)))
    for store in (other, dying):
        await store.run_timers()
        await store.run_timers()
    found = await other.mailbox(target)
    assert [(waiting.stamp, waiting.body) for waiting in found] == [(FIRST, {"n": 1})] * committed
    assert committed or not acknowledged
    assert (await other.stats()).timers == 0
    assert acknowledged is (steps > 0)
    for store in (dying, other):
        await store.close()


def _log(store: RedisStore) -> Key:
    return Key(store.partition("from"), "log")


async def test_killed_processes_lose_and_repeat_no_event(server: RedisServer) -> None:
    chance, handed, first = random.Random(1), set[int](), 0
    for _ in range(4):
        async with working(server.url, "hand", first) as worker:
            await worker.until("handed", times=chance.randrange(5, 25))
            await worker.kill()
        handed |= set(worker.all("handed"))
        first += 1000
    store = RedisStore(server.url, ack_seconds=5)
    await store.open()
    await store.run_timers()
    arrived: Counter[int] = Counter()
    for lane in (f"c{number}" for number in range(script.LANES)):
        for waiting in await store.mailbox(lane, limit=10_000):
            number = int(str(waiting.body["n"]))
            assert waiting.stamp == datetime.fromtimestamp(number, UTC)
            arrived[number] += 1
    await store.close()
    assert handed <= arrived.keys()
    assert set(arrived.values()) == {1}
