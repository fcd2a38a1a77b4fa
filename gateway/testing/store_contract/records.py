"""Records, their versions and their end."""

from __future__ import annotations

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.transaction import Put
from gateway.store.types import Key, Record
from gateway.testing.store_contract.helpers import transaction


async def one(store: Store, name: str) -> Record:
    key = Key(store.partition("c"), name)
    return (await store.get([key]))[key]


class RecordsContract:
    async def test_records_are_read_together(self, store: Store) -> None:
        at, _ = await store.commit(transaction(store, puts={"a": Put({"x": [1, None]}), "b": Put(None)}))
        partition = store.partition("c")
        keys = [Key(partition, "a"), Key(partition, "b"), Key(partition, "c"), Key("zz", "a")]
        snapshot = await store.get(keys)
        assert [snapshot[key] for key in keys] == [Record({"x": [1, None]}, 1), Record(None, 1), Record(), Record()]
        assert at <= snapshot.now <= await store.now()

    async def test_versions_count_the_writes(self, store: Store) -> None:
        for version in range(3):
            assert (await one(store, "a")).version == version
            await store.commit(transaction(store, expect={"a": version}, puts={"a": Put(version)}))
        for stale in (0, 2, 4):
            with pytest.raises(Conflict):
                await store.commit(transaction(store, expect={"a": stale}))
        assert await one(store, "a") == Record(2, 3)

    async def test_who_read_a_record_never_mistakes_a_later_one_for_it(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"a": Put("old"), "b": Put("old", ttl_seconds=10)}))
        await store.commit(transaction(store, deletes=["a"]))
        store.offset_seconds = 11
        for name in ("a", "b"):
            assert await one(store, name) == Record()
            await store.commit(transaction(store, expect={name: 0}, puts={name: Put("new")}))
            assert await one(store, name) == Record("new", 2)
            with pytest.raises(Conflict):
                await store.commit(transaction(store, expect={name: 1}))

    async def test_deleting_what_is_not_there_is_no_error(self, store: Store) -> None:
        await store.commit(transaction(store, deletes=["nothing"], expect={"nothing": 0}))
        assert await one(store, "nothing") == Record()

    async def test_a_record_ends_at_its_time(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"a": Put(1, ttl_seconds=60), "b": Put(2)}))
        store.offset_seconds = 59
        assert await one(store, "a") == Record(1, 1)
        store.offset_seconds = 61
        assert (await one(store, "a"), await one(store, "b")) == (Record(), Record(2, 1))
        assert [key.name for key, _ in await store.scan("")] == ["b"]

    async def test_a_write_sets_the_time_anew(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"a": Put(1, ttl_seconds=60), "b": Put(1, ttl_seconds=60)}))
        store.offset_seconds = 50
        await store.commit(transaction(store, puts={"a": Put(2, ttl_seconds=60), "b": Put(2)}))
        store.offset_seconds = 100
        assert (await one(store, "a")).value == 2
        store.offset_seconds = 10_000
        assert ((await one(store, "a")).version, (await one(store, "b")).value) == (0, 2)

    async def test_a_scan_goes_by_the_beginning_of_the_name_in_order(self, store: Store) -> None:
        names = ["a", "a:", "a:1", "a:2", "a:é", "a:🎉", "a;", "ab", "b", "a:%_'*[", "A:1"]
        await store.commit(transaction(store, puts={name: Put(name) for name in names}))
        found = await store.scan("a:")
        assert [key.name for key, _ in found] == sorted(name for name in names if name.startswith("a:"))
        assert all((key.partition, record) == (store.partition("c"), Record(key.name, 1)) for key, record in found)
        assert len(await store.scan("")) == len(names)
        assert await store.scan("a:%") == [(Key(store.partition("c"), "a:%_'*["), Record("a:%_'*[", 1))]
        assert await store.scan("a_") == []

    async def test_record_name_with_sql_is_stored_as_it_is(self, store: Store) -> None:
        name = "x'; DROP TABLE record; --"
        await store.commit(transaction(store, puts={name: Put(1)}))
        assert (await one(store, name)).value == 1
