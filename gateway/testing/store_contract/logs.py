"""Logs: lines in order, read from any place, and watched as they are written."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from channels import Json
from gateway.store.base import Store
from gateway.store.errors import Conflict, StoreUnavailable
from gateway.store.types import Key
from gateway.testing.store_contract.helpers import transaction


async def write(store: Store, *values: Json, log: str = "log") -> None:
    await store.commit(transaction(store, appends=[(log, value) for value in values]))


async def collect(store: Store, log: Key, count: int, after: int = 0) -> list[Json]:
    found: list[Json] = []
    async with aclosing(store.watch(log, after=after)) as entries:
        async for entry in entries:
            found.append(entry.value)
            if len(found) == count:
                break
    return found


class LogsContract:
    async def test_lines_are_read_in_order_from_anywhere(self, store: Store) -> None:
        log = Key(store.partition("c"), "log")
        await write(store, "a", {"b": [None]})
        await write(store, "elsewhere", log="other")
        await write(store, "c", "d")
        entries = await store.read(log)
        assert [entry.value for entry in entries] == ["a", {"b": [None]}, "c", "d"]
        assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
        assert [entry.stamp for entry in entries] == sorted(entry.stamp for entry in entries)
        assert await store.read(log, after=entries[1].seq) == entries[2:]
        assert await store.read(log, last=2) == entries[2:]
        assert await store.read(log, after=entries[0].seq, last=2) == entries[2:]
        assert await store.read(log, after=entries[2].seq, last=2) == entries[3:]
        assert await store.read(log, first=2) == entries[:2]
        assert await store.read(log, first=100) == entries
        assert await store.read(log, after=entries[1].seq, first=1) == entries[2:3]
        assert await store.read(log, first=0) == await store.read(log, after=entries[3].seq, first=3) == []
        assert await store.read(log, last=0) == await store.read(log, after=entries[3].seq) == []
        assert await store.read(Key(log.partition, "none")) == await store.read(Key("zz", "log")) == []

    async def test_the_partitions_hold_all_conversations(self, store: Store) -> None:
        assert len(set(store.partitions)) == len(store.partitions) > 0
        assert {store.partition(f"conversation {number}") for number in range(500)} == {*store.partitions}

    async def test_lines_written_together_all_arrive(self, store: Store) -> None:
        await asyncio.gather(*(write(store, n) for n in range(64)))
        entries = await store.read(Key(store.partition("c"), "log"))
        assert sorted(int(str(entry.value)) for entry in entries) == list(range(64))

    async def test_a_watcher_sees_what_was_and_what_comes(self, store: Store) -> None:
        log = Key(store.partition("c"), "log")
        await write(store, 1, 2)
        watching = [asyncio.create_task(collect(store, log, 4)) for _ in range(3)]
        [first, _] = await store.read(log)
        watching.append(asyncio.create_task(collect(store, log, 3, after=first.seq)))
        await write(store, 3)
        await write(store, "elsewhere", log="other")
        await write(store, 4)
        assert await asyncio.wait_for(asyncio.gather(*watching), 5) == [[1, 2, 3, 4]] * 3 + [[2, 3, 4]]

    async def test_a_watcher_sees_nothing_that_was_not_committed(self, store: Store) -> None:
        watching = asyncio.create_task(collect(store, Key(store.partition("c"), "log"), 1))
        with pytest.raises(Conflict):
            await store.commit(transaction(store, appends=[("log", "no")], expect={"r": 1}))
        await write(store, "yes")
        assert await asyncio.wait_for(watching, 5) == ["yes"]

    async def test_a_watcher_hears_that_the_store_was_closed(self, store: Store) -> None:
        watching = asyncio.create_task(collect(store, Key(store.partition("c"), "log"), 1))
        await store.ping()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(watching, 5)
