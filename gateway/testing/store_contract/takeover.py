"""Takeover of a lost lease: another worker continues the work, and later commits of the old holder fail."""

from __future__ import annotations

import pytest

from gateway.store.base import Store
from gateway.store.errors import Fenced
from gateway.testing.store_contract.helpers import arrive, event, later, part, seqs, take, transaction

SHORT = 0.02
"""Seconds of a lease that lapses in a test."""


class TakeoverContract:
    async def test_a_lapsed_lease_is_taken_over_and_told_of(self, store: Store) -> None:
        await store.accept([event(body={"n": 1}), event(body={"n": 2})])
        dead = await take(store, lease_seconds=SHORT)
        await arrive(store, body={"n": 3})
        lease = await take(store, wait_seconds=5)
        assert (lease.tries, lease.died, lease.fence > dead.fence) == (1, True, True)
        assert [waiting.tries for waiting in lease.events] == [1, 1, 0]

    async def test_lapsed_lease_is_taken_over_before_later_work(self, store: Store) -> None:
        await arrive(store, "a")
        await take(store, lease_seconds=SHORT)
        await arrive(store, "b")
        assert (await take(store, only="a", wait_seconds=5)).died
        assert not (await take(store)).died

    async def test_a_zombie_changes_nothing(self, store: Store) -> None:
        await arrive(store)
        zombie = await take(store, lease_seconds=SHORT)
        lease = await take(store, wait_seconds=5)
        with pytest.raises(Fenced):
            await store.renew(zombie)
        with pytest.raises(Fenced):
            await store.commit(
                transaction(store, of=zombie, finish="done", consume=seqs(zombie.events), appends=[("log", 1)])
            )
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        with pytest.raises(Fenced):
            await store.commit(transaction(store, of=zombie))

    async def test_lapsed_lease_that_nobody_took_can_be_renewed(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store, lease_seconds=SHORT)
        while (await store.stats()).leased:
            pass
        assert (await store.stats()).ready == 1
        await store.renew(lease, lease_seconds=60)
        assert ((await store.stats()).ready, (await store.stats()).leased) == (0, 1)
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))

    async def test_checkpoints_survive_death_and_failure(self, store: Store) -> None:
        await arrive(store)
        first = await take(store)
        await store.commit(transaction(store, of=first, steps=["one", {"two": 2}]))
        await store.commit(transaction(store, of=first, steps=[None]))
        await store.renew(first, lease_seconds=SHORT)
        second = await take(store, wait_seconds=5)
        assert second.steps == ("one", {"two": 2}, None)
        await store.commit(transaction(store, of=second, finish="failed", steps=["four"], due=await later(store, 60)))
        store.offset_seconds = 61
        third = await take(store)
        assert (third.steps, third.tries, third.died) == (("one", {"two": 2}, None, "four"), 2, False)
        await store.commit(transaction(store, of=third, finish="done"))
        assert (await take(store)).steps == ()

    async def test_a_checkpoint_is_its_conversations_own(self, store: Store) -> None:
        await arrive(store, "a")
        await arrive(store, "b")
        await store.commit(transaction(store, of=await take(store, only="a"), steps=["a"]))
        assert (await take(store, only="b")).steps == ()

    async def test_what_was_dead_is_known_until_somebody_finishes(self, store: Store) -> None:
        await store.commit(transaction(store, actions=["act"], parts=[part("p")]))
        for kind in ("action", "out"):
            await take(store, kind, lease_seconds=SHORT)
            lease = await take(store, kind, lease_seconds=SHORT, wait_seconds=5)
            assert (lease.died, lease.tries) == (True, 1)
            lease = await take(store, kind, wait_seconds=5)
            assert (lease.died, lease.tries) == (True, 2)
            await store.commit(transaction(store, of=lease, finish="failed"))
            lease = await take(store, kind)
            assert (lease.died, lease.tries) == (False, 3)

    @pytest.mark.parametrize("how", ["taken over", "failed"])
    async def test_signals_of_a_turn_outlive_what_becomes_of_its_outbox(self, store: Store, how: str) -> None:
        await arrive(store)
        turn = await take(store)
        await store.commit(transaction(store, parts=[part("p")]))
        out = await take(store, "out", lease_seconds=0.05 if how == "taken over" else 60)
        await store.commit(transaction(store, signals=[("c", "stop")]))
        match how:
            case "taken over":
                assert (await take(store, "out", wait_seconds=15)).died
            case _:
                await store.commit(transaction(store, of=out, finish="failed"))
        assert (await store.renew(turn)).signals == ("stop",)

    async def test_signals_of_the_dead_are_not_the_next_ones(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await store.commit(transaction(store, signals=[("c", "stop")]))
        await store.renew(lease, lease_seconds=SHORT)
        assert (await store.renew(await take(store, wait_seconds=5))).signals == ()

    async def test_a_dead_holder_whose_work_is_done_leaves_nothing_ready(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await store.commit(transaction(store, of=lease, consume=seqs(lease.events), steps=["half way"]))
        await store.renew(lease, lease_seconds=SHORT)
        assert await store.lease("w", ["turn"], wait_seconds=SHORT * 3) is None
        assert (await store.stats()).ready == 0
        await arrive(store)
        lease = await take(store)
        assert (lease.died, lease.tries, lease.steps) == (True, 1, ("half way",))
