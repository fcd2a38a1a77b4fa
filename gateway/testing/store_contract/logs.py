"""Logs: lines in order, read from any place, watched while lines are appended, and cut at the beginning."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from channels import Json
from gateway.store.base import Store
from gateway.store.codec import decode
from gateway.store.errors import Conflict, Fenced, StoreUnavailable
from gateway.store.transaction import LogCut
from gateway.store.types import Key, Prefetch
from gateway.testing.store_contract.helpers import makes_ready, take, transaction


async def write(store: Store, *values: Json, log: str = "log", **changes: Any) -> None:
    await store.commit(transaction(store, appends=[(log, value) for value in values], **changes))


async def cut(store: Store, log: str = "log", *, upto: int | None = None, keep: int = 0) -> None:
    await store.commit(transaction(store, cut=[LogCut(log=log, upto=upto, keep=keep)]))


async def shown(store: Store, log: str = "log", **which: int) -> dict[int, Json]:
    """Return the lines of a log by number."""
    entries = await store.read(Key(store.partition("c"), log), **which)
    assert [entry.seq for entry in entries] == sorted(entry.seq for entry in entries)
    return {entry.seq: entry.value for entry in entries}


class CutsContract:
    async def test_the_lines_that_are_left_keep_their_numbers(self, store: Store) -> None:
        await write(store, *"abcdef")
        before = await store.read(Key(store.partition("c"), "log"))
        first, second, third, fourth = [entry.seq for entry in before][:4]
        await cut(store, upto=second)
        assert await store.read(Key(store.partition("c"), "log")) == before[2:]
        await write(store, "g")
        assert await shown(store) == dict(zip(range(third, third + 5), "cdefg", strict=True))
        for after in (0, first, second):
            assert [*(await shown(store, after=after)).values()] == [*"cdefg"]
            assert [*(await shown(store, after=after, first=2)).values()] == [*"cd"]
            assert [*(await shown(store, after=after, last=2)).values()] == [*"fg"]
        assert [*(await shown(store, after=third, first=1)).values()] == ["d"]
        assert [*(await shown(store, after=fourth, last=9)).values()] == [*"efg"]
        assert await shown(store, last=0) == await shown(store, first=0) == {}

    async def test_a_cut_that_is_repeated_removes_no_more(self, store: Store) -> None:
        await write(store, *"abcd")
        [*numbers] = await shown(store)
        for upto in (numbers[1], numbers[1], numbers[0], 0):
            await cut(store, upto=upto)
            assert [*await shown(store)] == numbers[2:]
        await cut(store, "none", upto=7)
        await cut(store, "none")
        assert await shown(store, "none") == {}

    async def test_no_number_comes_twice_in_a_log_that_was_emptied(self, store: Store) -> None:
        await write(store, *"abc")
        [*_, last] = await shown(store)
        for upto in (None, last + 100):
            await cut(store, upto=upto)
            assert await shown(store) == await shown(store, after=last) == await shown(store, last=3) == {}
            await write(store, "d", "e")
            assert [*(await shown(store, after=last)).values()] == ["d", "e"]
            [fourth, fifth] = await shown(store)
            assert (fifth, fourth > last) == (fourth + 1, True)
            last = fifth
        await cut(store)
        await cut(store)
        await write(store, "f")
        assert [number > last for number in await shown(store)] == [True]

    async def test_a_log_beside_one_that_was_emptied_is_untouched(self, store: Store) -> None:
        await write(store, "a", "b", log="other")
        before = await shown(store, "other")
        await write(store, *"abcdefg")
        await cut(store)
        await write(store, "c", log="other")
        assert await shown(store, "other") == before | {max(before) + 1: "c"}
        await cut(store, "other")
        await write(store, "h")
        assert min(await shown(store)) > 7, "the longest of the logs that were emptied"
        await write(store, "a", "b", log="later")
        await cut(store, "later", upto=min(await shown(store, "later")))
        assert [*(await shown(store, "later")).values()] == ["b"]

    async def test_the_last_lines_can_be_kept(self, store: Store) -> None:
        await write(store, *"abcde")
        [_, second, *_, fifth] = await shown(store)
        await cut(store, keep=9)
        await cut(store, upto=second, keep=4)
        assert [*(await shown(store)).values()] == [*"bcde"]
        await cut(store, upto=fifth, keep=2)
        assert await shown(store) == {fifth - 1: "d", fifth: "e"}
        await cut(store, keep=1)
        assert await shown(store) == {fifth: "e"}

    async def test_the_lines_of_the_same_commit_stay(self, store: Store) -> None:
        await write(store, "a", "b")
        [_, second] = await shown(store)
        await write(store, "c", cut=[LogCut(log="log", upto=second + 1)])
        assert [*(await shown(store)).values()] == ["c"]
        await write(store, "d", "e", cut=[LogCut(log="log", keep=1)])
        assert [*(await shown(store)).values()] == ["c", "d", "e"]
        assert min(await shown(store)) > second

    async def test_a_cut_that_is_refused_removes_no_line(self, store: Store) -> None:
        await write(store, "a", "b", **makes_ready("turn", "c"))
        lost = await take(store, lease_seconds=0.02)
        await take(store, wait_seconds=5)
        everything = [LogCut(log="log")]
        with pytest.raises(Conflict):
            await store.commit(transaction(store, cut=everything, expect={"r": 1}))
        with pytest.raises(Fenced):
            await store.commit(transaction(store, of=lost, cut=everything))
        with pytest.raises(ValueError, match="negative"):
            await store.commit(transaction(store, cut=[LogCut(log="log", keep=-1)]))
        assert [*(await shown(store)).values()] == ["a", "b"]

    @pytest.mark.parametrize(("keep", "lines"), [(4, [2, 3, 4]), (2, [3, 4]), (1, [4]), (0, [])])
    async def test_a_lease_shows_the_lines_that_are_left(self, store: Store, keep: int, lines: list[Json]) -> None:
        written: list[tuple[str, Json]] = [("said/c", number) for number in (1, 2, 3, 4)]
        await store.commit(transaction(store, appends=written, **makes_ready("turn", "c")))
        await cut(store, "said/c", keep=keep)
        prefetch = Prefetch(log="said", last=3)
        lease = await take(store, prefetch=prefetch)
        assert [decode(line) for line in lease.lines] == lines
        await store.commit(transaction(store, of=lease, finish="failed", appends=[("said/c", 5)]))
        assert [decode(line) for line in (await take(store, prefetch=prefetch)).lines] == [*lines, 5][-3:]

    async def test_a_watcher_goes_on_behind_a_cut(self, store: Store) -> None:
        await write(store, "a", "b")
        log = Key(store.partition("c"), "log")
        found: list[Json] = []
        async with asyncio.timeout(10), aclosing(store.watch(log)) as entries:
            async for entry in entries:
                found.append(entry.value)
                match entry.value:
                    case "b":
                        await cut(store)
                        await write(store, "c", "d", "e")
                    case "c":
                        await cut(store, upto=entry.seq)
                    case "e":
                        await cut(store, keep=1)
                        await write(store, "f")
                    case "f":
                        break
        assert found == [*"abcdef"]

    async def test_logs_are_found_by_name_and_age(self, store: Store) -> None:
        names = ["said/a", "said/b*", "said/[c]", "said/bc", "say/d", "saidé"]
        for name in names:
            await write(store, 1, log=name)
        noon = await store.now()
        store.offset_seconds += 60
        await write(store, 2, log=names[0])
        await write(store, 1, log="said/new")
        partition = store.partition("c")

        async def logs(prefix: str, **which: Any) -> set[str]:
            found = await store.logs(prefix, **which)
            assert {key.partition for key in found} <= {partition} and len(found) == len({*found})
            return {key.name for key in found}

        assert await logs("said/") == {*names[:4], "said/new"}
        assert await logs("said/b*") == {"said/b*"}
        assert await logs("said/[") == {"said/[c]"}
        assert await logs("") == {*names, "said/new"}
        later = await store.now()
        between = noon + (later - noon) / 2
        assert await logs("said/", before=between) == {*names[:4]}
        assert await logs("said/", before=noon - timedelta(days=1)) == set()
        await cut(store, names[0], keep=1)
        await cut(store, "said/b*")
        assert await logs("said/") == {names[0], "said/[c]", "said/bc", "said/new"}
        assert await logs("said/", before=between) == {"said/[c]", "said/bc"}

    async def test_logs_of_every_partition_are_found(self, store: Store) -> None:
        names = [f"said/{number}" for number in range(60)]
        for name in names:
            await store.commit(transaction(store, conversation=name, appends=[(name, 1)]))
        assert {*await store.logs("said/")} == {Key(store.partition(name), name) for name in names}
        assert {*await store.logs("said/1", before=await store.now())} <= {*await store.logs("said/1")}


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

    async def test_watcher_sees_earlier_and_later_entries(self, store: Store) -> None:
        log = Key(store.partition("c"), "log")
        await write(store, 1, 2)
        watching = [asyncio.create_task(collect(store, log, 4)) for _ in range(3)]
        [first, _] = await store.read(log)
        watching.append(asyncio.create_task(collect(store, log, 3, after=first.seq)))
        await write(store, 3)
        await write(store, "elsewhere", log="other")
        await write(store, 4)
        assert await asyncio.wait_for(asyncio.gather(*watching), 5) == [[1, 2, 3, 4]] * 3 + [[2, 3, 4]]

    async def test_watcher_sees_only_committed_entries(self, store: Store) -> None:
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
