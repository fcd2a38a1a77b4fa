"""Dead letters: kept, listed, replayed and dropped."""

from __future__ import annotations

from dataclasses import replace

from gateway.store.base import Store
from gateway.store.types import Dead
from gateway.testing.store_contract.helpers import event, part, seqs, take, transaction


class DeadLettersContract:
    async def test_dead_letters_are_listed_as_they_were_put_aside(self, store: Store) -> None:
        stamped = event("c", "a", "b", body={"n": 1}, wakes=False, refusable=True, stamp=await store.now())
        letters = [
            Dead(dead_id="z", conversation="c", reason="model down", incoming=stamped),
            Dead(dead_id="a", conversation="c", reason="blocked", part=replace(part("p", text="x"), tries=3)),
            Dead(dead_id="m", conversation="?", reason="empty"),
        ]
        at, _ = await store.commit(transaction(store, dead=letters))
        listed = await store.dead_letters()
        assert listed == [
            replace(letter, stamp=at, seq=found.seq) for letter, found in zip(letters, listed, strict=True)
        ]
        assert (await store.stats()).dead == 3

    async def test_a_letter_of_the_same_id_replaces_the_other(self, store: Store) -> None:
        for reason in ("first", "second"):
            await store.commit(transaction(store, dead=[Dead(dead_id="d", conversation="c", reason=reason)]))
        assert [letter.reason for letter in await store.dead_letters()] == ["second"]

    async def test_event_is_replayed_at_the_end_though_its_id_is_known(self, store: Store) -> None:
        await store.accept([event("c", "a", body={"n": 1}), event("c", "b", body={"n": 2})])
        lease = await take(store)
        letter = Dead(dead_id="d", conversation="c", reason="r", incoming=event("c", "a", body={"n": 1}))
        await store.commit(transaction(store, of=lease, consume=seqs(lease.events)[:1], dead=[letter], finish="done"))
        assert await store.replay("d") is True
        assert await store.replay("d") is False
        assert [(found.body["n"], found.tries) for found in (await take(store)).events] == [(2, 0), (1, 0)]
        assert await store.accept([event("c", "a")]) == [False]
        assert await store.dead_letters() == []

    async def test_from_its_replay_on_an_event_is_known_for_as_long_again(self, store: Store) -> None:
        await store.accept([event("c", "a", keep_seconds=100)])
        letter = Dead(dead_id="d", conversation="c", reason="r", incoming=event("c", "a", keep_seconds=100))
        await store.commit(transaction(store, dead=[letter]))
        store.offset_seconds = 60
        await store.replay("d")
        store.offset_seconds = 120
        assert await store.accept([event("c", "a", keep_seconds=100)]) == [False]
        store.offset_seconds = 180
        assert await store.accept([event("c", "a", keep_seconds=100)]) == [True]

    async def test_a_replayed_event_that_decides_is_pointed_again(self, store: Store) -> None:
        letter = Dead(dead_id="d", conversation="c", reason="r", incoming=event("c", "a", decides=True))
        await store.commit(transaction(store, dead=[letter]))
        await store.replay("d")
        assert len(await store.pending_decisions("c")) == 1

    async def test_a_part_is_replayed_at_the_end_of_its_outbox(self, store: Store) -> None:
        letter = Dead(dead_id="d", conversation="c", reason="r", part=replace(part("a", text="x"), tries=9))
        await store.commit(transaction(store, parts=[part("b")], dead=[letter]))
        assert await store.replay("d") is True
        lease = await take(store, "out")
        assert [(queued.part_id, queued.tries) for queued in lease.parts] == [("b", 0), ("a", 0)]
        assert lease.parts[1].body == {"text": "x"}

    async def test_a_dropped_letter_is_gone(self, store: Store) -> None:
        await store.commit(transaction(store, dead=[Dead(dead_id="d", conversation="c", reason="r", incoming=event())]))
        assert [await store.drop("d"), await store.drop("d"), await store.replay("d")] == [True, False, False]
        assert ((await store.stats()).dead, (await store.stats()).waiting) == (0, 0)

    async def test_letters_are_shown_a_page_at_a_time(self, store: Store) -> None:
        for number in range(25):
            letter = Dead(dead_id=f"d{number}", conversation=f"c{number}", reason="r")
            await store.commit(transaction(store, conversation=f"c{number}", dead=[letter]))
        names, after = [], 0
        while page := await store.dead_letters(after=after, limit=10):
            assert len(page) <= 10
            names += [letter.dead_id for letter in page]
            after = page[-1].seq or 0
        assert names == [f"d{number}" for number in range(25)]
        assert [letter.dead_id for letter in await store.dead_letters()] == names
        assert await store.dead_letters(limit=0) == []

    async def test_letters_are_dropped_by_reason_or_all(self, store: Store) -> None:
        for number in range(12):
            letter = Dead(dead_id=f"d{number}", conversation=f"c{number}", reason=f"of {number % 3}%")
            await store.commit(transaction(store, conversation=f"c{number}", dead=[letter]))
        assert await store.drop_all("of 1%") == 4
        assert {letter.reason for letter in await store.dead_letters()} == {"of 0%", "of 2%"}
        assert await store.drop_all("nothing") == 0
        assert await store.drop_all() == 8
        assert (await store.stats()).dead == 0
