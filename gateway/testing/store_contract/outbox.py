"""Outboxes: parts are sent in order, with one lane for each conversation."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.store.base import Store
from gateway.store.types import Dead, QueuedPart
from gateway.testing.store_contract.helpers import later, near, part, take, transaction


class OutboxContract:
    async def test_parts_wait_in_order(self, store: Store) -> None:
        before = await store.now()
        other = near(store, "other")
        await store.commit(transaction(store, parts=[part("b", text="1"), part("x", other), part("a", text="2")]))
        waiting = await store.outbox("c")
        assert [(queued.part_id, queued.body, queued.tries) for queued in waiting] == [
            ("b", {"text": "1"}, 0),
            ("a", {"text": "2"}, 0),
        ]
        after = await store.now()
        assert all(queued.stamp is not None and before <= queued.stamp <= after for queued in waiting)
        assert (await take(store, "out", only="c")).parts == tuple(waiting)
        assert await store.outbox("nobody") == []

    async def test_a_lease_holds_at_most_twenty_parts(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part(f"p{n}") for n in range(25)]))
        lease = await take(store, "out")
        assert [queued.part_id for queued in lease.parts] == [f"p{n}" for n in range(20)]
        sent = [queued.part_id for queued in lease.parts]
        await store.commit(transaction(store, of=lease, sent=sent, finish="done"))
        lease = await take(store, "out")
        assert [queued.part_id for queued in lease.parts] == [f"p{n}" for n in range(20, 25)]

    async def test_what_was_sent_is_gone_and_sent_twice_is_no_error(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a"), part("b")]))
        lease = await take(store, "out")
        await store.commit(transaction(store, of=lease, sent=["a"]))
        await store.commit(transaction(store, of=lease, sent=["a", "never there"]))
        assert [queued.part_id for queued in await store.outbox("c")] == ["b"]
        await store.commit(transaction(store, of=lease, sent=["b"], finish="done"))
        assert await store.lease("w", ["out"]) is None
        assert (await store.stats()).parts == 0

    async def test_a_part_that_waits_is_not_queued_twice(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a", text="first")]))
        await store.commit(transaction(store, parts=[part("a", text="again"), part("b")]))
        assert [(queued.part_id, queued.body) for queued in await store.outbox("c")] == [
            ("a", {"text": "first"}),
            ("b", {}),
        ]

    async def test_a_part_queued_and_sent_in_one_commit_leaves_nothing(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a")], sent=["a"]))
        assert await store.outbox("c") == []
        assert await store.lease("w", ["out"]) is None

    async def test_first_part_counts_leases_ended_without_its_receipt(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a"), part("b")]))

        async def tries() -> list[tuple[str, int]]:
            return [(queued.part_id, queued.tries) for queued in await store.outbox("c")]

        await store.commit(transaction(store, of=await take(store, "out"), finish="failed"))
        assert await tries() == [("a", 1), ("b", 0)]
        parked = transaction(store, of=await take(store, "out"), finish="done", due=await later(store, 5))
        await store.commit(parked)
        assert await tries() == [("a", 2), ("b", 0)]
        store.offset_seconds = 6
        await take(store, "out", lease_seconds=0.02)
        lease = await take(store, "out", wait_seconds=5)
        assert [(queued.part_id, queued.tries) for queued in lease.parts] == [("a", 3), ("b", 0)]
        await store.commit(transaction(store, of=lease, sent=["a"], finish="done"))
        assert await tries() == [("b", 0)]

    async def test_a_part_sent_before_the_lease_died_blames_no_other(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a"), part("b")]))
        lease = await take(store, "out")
        await store.commit(transaction(store, of=lease, sent=["a"]))
        await store.renew(lease, lease_seconds=0.02)
        lease = await take(store, "out", wait_seconds=5)
        assert [(queued.part_id, queued.tries) for queued in lease.parts] == [("b", 0)]

    async def test_parts_queued_while_the_outbox_is_held_are_sent_after_it(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a")]))
        lease = await take(store, "out")
        await store.commit(transaction(store, parts=[part("b")]))
        assert await store.lease("w", ["out"]) is None
        await store.commit(transaction(store, of=lease, sent=["a"], finish="done"))
        assert [queued.part_id for queued in (await take(store, "out")).parts] == ["b"]

    async def test_a_lease_is_of_one_pool_unless_it_names_its_outbox(self, store: Store) -> None:
        other = near(store, "other")
        await store.commit(
            transaction(
                store, parts=[pooled("a", "c", "slow"), pooled("b", other, "fast"), part("x", near(store, "d"))]
            )
        )
        assert await store.lease("w", ["out"], pool="nobody's") is None
        lease = await take(store, "out", pool="fast")
        assert [queued.part_id for queued in lease.parts] == ["b"]
        assert await store.lease("w", ["out"], pool="fast") is None
        assert (await take(store, "out")).lane == near(store, "d")
        lease = await take(store, "out", only="c")
        assert [queued.part_id for queued in lease.parts] == ["a"]

    async def test_an_outbox_stays_in_its_pool(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[pooled("a", "c", "slow"), pooled("b", "c", "slow")]))
        lease = await take(store, "out", pool="slow")
        await store.commit(transaction(store, of=lease, sent=["a"], finish="failed", due=await later(store, 60)))
        assert (await store.stats()).parked == 1
        store.offset_seconds += 61
        lease = await take(store, "out", pool="slow", lease_seconds=0.001)
        lease = await take(store, "out", pool="slow")
        assert (lease.died, [queued.part_id for queued in lease.parts]) == (True, ["b"])
        assert (await store.stats()).leased == 1
        letter = Dead(dead_id="l", conversation="c", reason="r", part=lease.parts[0])
        await store.commit(transaction(store, of=lease, sent=["b"], dead=[letter], finish="done"))
        assert await store.replay("l")
        assert (await take(store, "out", pool="slow")).parts[0].body == {}

    async def test_who_waits_for_one_outbox_of_any_pool_sees_it_fall_due(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[pooled("a", "c", "slow")]))
        lease = await take(store, "out", pool="slow")
        await store.commit(transaction(store, of=lease, finish="failed", due=await later(store, 0.05)))
        await asyncio.wait_for(take(store, "out", only="c", wait_seconds=20), 5)

    async def test_who_waits_for_a_pool_hears_of_its_parts(self, store: Store) -> None:
        waits = asyncio.create_task(take(store, "out", pool="slow", wait_seconds=10.0))
        await asyncio.sleep(0)
        await store.commit(transaction(store, parts=[pooled("b", near(store, "other"), "fast")]))
        await store.commit(transaction(store, parts=[pooled("a", "c", "slow")]))
        assert (await waits).parts[0].part_id == "a"


def pooled(part_id: str, conversation: str, pool: str) -> QueuedPart:
    return replace(part(part_id, conversation), pool=pool)
