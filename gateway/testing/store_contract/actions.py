"""Actions that are ready to be executed."""

from __future__ import annotations

from datetime import timedelta

from gateway.store.base import Store
from gateway.testing.store_contract.helpers import take, transaction


class ActionsContract:
    async def test_an_action_is_executed_until_it_is_done(self, store: Store) -> None:
        await store.commit(transaction(store, actions=["act"]))
        lease = await take(store, "action")
        assert (lease.lane, lease.partition, lease.events, lease.parts) == ("act", store.partition("c"), (), ())
        await store.commit(transaction(store, of=lease, finish="failed"))
        lease = await take(store, "action", only="act")
        assert lease.tries == 1
        await store.commit(transaction(store, of=lease, finish="done"))
        assert await store.lease("w", ["action"]) is None
        assert (await store.stats()).ready == 0

    async def test_an_action_put_twice_is_one(self, store: Store) -> None:
        await store.commit(transaction(store, actions=["act", "act"]))
        await store.commit(transaction(store, actions=["act"]))
        await store.commit(transaction(store, of=await take(store, "action"), finish="done"))
        assert await store.lease("w", ["action"]) is None

    async def test_an_action_that_is_put_again_is_put_off_no_more(self, store: Store) -> None:
        await store.commit(transaction(store, actions=["act"]))
        due = await store.now() + timedelta(minutes=5)
        await store.commit(transaction(store, of=await take(store, "action"), finish="failed", due=due))
        assert await store.lease("w", ["action"]) is None
        await store.commit(transaction(store, actions=["act"]))
        assert (await take(store, "action")).tries == 1

    async def test_an_action_put_while_it_is_held_comes_again(self, store: Store) -> None:
        await store.commit(transaction(store, actions=["act"]))
        lease = await take(store, "action")
        await store.commit(transaction(store, actions=["act"]))
        assert await store.lease("w", ["action"]) is None
        await store.commit(transaction(store, of=lease, finish="done"))
        assert (await take(store, "action")).tries == 0

    async def test_an_action_put_by_its_own_last_commit_comes_again(self, store: Store) -> None:
        await store.commit(transaction(store, actions=["act"]))
        lease = await take(store, "action")
        await store.commit(transaction(store, of=lease, finish="done", actions=["act"]))
        await take(store, "action")
