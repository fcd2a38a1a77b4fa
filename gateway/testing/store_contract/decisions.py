"""Decisions ahead of turns, and the due actions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.types import FOLDED_AFTER_SECONDS
from gateway.testing.store_contract.helpers import arrive, event, near, seqs, take, transaction


class DecisionsContract:
    async def test_pointed_event_is_found_at_once_and_readies_no_lane(self, store: Store) -> None:
        b = near(store, "b", "a")
        await store.accept([event("a", decides=True, body={"n": 1}), event(b), event(b, decides=True)])
        found = await store.pending_decisions()
        assert [(waiting.conversation, waiting.pointed) for waiting in found] == [("a", True), (b, True)]
        assert found[0].body == {"n": 1}
        assert [waiting.conversation for waiting in await store.pending_decisions(b)] == [b]
        assert await store.pending_decisions("c") == []
        assert len(await store.pending_decisions(limit=1)) == 1
        assert await store.lease("w", ["turn"], only="a") is None

    async def test_pointers_can_be_asked_for_by_age(self, store: Store) -> None:
        await arrive(store, decides=True)
        assert await store.pending_decisions(older_than_seconds=2.0) == []
        store.offset_seconds = 3.0
        assert len(await store.pending_decisions(older_than_seconds=2.0)) == 1

    async def test_pointed_event_keeps_its_place_before_a_later_message(self, store: Store) -> None:
        await store.accept([event(decides=True, body={"n": 1}), event(body={"n": 2})])
        lease = await take(store)
        assert [(waiting.body["n"], waiting.pointed) for waiting in lease.events] == [(1, True), (2, False)]

    async def test_event_that_loses_its_pointer_wakes_its_conversation(self, store: Store) -> None:
        await arrive(store, decides=True)
        waiting = asyncio.create_task(take(store, wait_seconds=5.0))
        await store.commit(transaction(store, drop_pointers=seqs(await store.pending_decisions())))
        assert [(found.pointed, found.tries) for found in (await waiting).events] == [(False, 0)]
        assert await store.pending_decisions() == []

    async def test_unwaking_event_losing_its_pointer_readies_no_lane(self, store: Store) -> None:
        await arrive(store, decides=True, wakes=False)
        await store.commit(transaction(store, drop_pointers=seqs(await store.pending_decisions())))
        assert await store.lease("w", ["turn"]) is None

    async def test_a_pointer_goes_with_its_event(self, store: Store) -> None:
        await arrive(store, decides=True)
        await store.commit(transaction(store, consume=seqs(await store.pending_decisions())))
        assert await store.pending_decisions() == []
        assert ((await store.stats()).waiting, (await store.stats()).pointed) == (0, 0)

    async def test_pointer_is_resolved_only_once(self, store: Store) -> None:
        await arrive(store, decides=True)
        pointers = seqs(await store.pending_decisions())
        await store.commit(transaction(store, drop_pointers=pointers))
        with pytest.raises(Conflict):
            await store.commit(transaction(store, drop_pointers=pointers))
        await store.commit(transaction(store, consume=pointers))
        with pytest.raises(Conflict):
            await store.commit(transaction(store, consume=pointers))
        with pytest.raises(Conflict):
            await store.commit(transaction(store, drop_pointers=pointers))

    async def test_a_decision_is_taken_while_a_turn_runs(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await arrive(store, decides=True)
        await store.commit(transaction(store, consume=seqs(await store.pending_decisions("c")), parts=[]))
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        assert (await store.stats()).waiting == 0

    async def test_lane_without_its_last_waking_event_is_not_ready(self, store: Store) -> None:
        await store.accept([event(wakes=False), event()])
        found = await take(store)
        await store.commit(transaction(store, of=found, finish="failed"))
        await store.commit(transaction(store, consume=seqs(found.events)[1:]))
        assert (await store.stats()).ready == 0
        assert await store.lease("w", ["turn"]) is None
        store.offset_seconds = FOLDED_AFTER_SECONDS + 1
        assert len((await take(store)).events) == 1

    async def test_turn_leaving_only_pointed_events_readies_no_lane(self, store: Store) -> None:
        await store.accept([event(), event(decides=True)])
        lease = await take(store)
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)[:1]))
        assert ((await store.stats()).ready, (await store.stats()).waiting) == (0, 1)
        assert await store.lease("w", ["turn"]) is None

    async def test_an_event_is_replaced_in_its_place(self, store: Store) -> None:
        await store.accept([event(body={"n": 1}), event(decides=True, body={"n": 2}), event(body={"n": 3})])
        [(_, seq)] = seqs(await store.pending_decisions())
        await store.commit(transaction(store, replace=[("c", seq, {"n": 22})]))
        lease = await take(store)
        assert [(waiting.body["n"], waiting.pointed) for waiting in lease.events] == [
            (1, False),
            (22, True),
            (3, False),
        ]
        await store.commit(transaction(store, consume=[("c", seq)]))
        with pytest.raises(Conflict):
            await store.commit(transaction(store, replace=[("c", seq, {"n": 222})]))

    async def test_an_event_belongs_to_its_conversation(self, store: Store) -> None:
        await arrive(store, decides=True)
        [(_, seq)] = seqs(await store.pending_decisions())
        d = near(store, "d")
        mistaken: list[dict[str, Any]] = [
            {"consume": [(d, seq)]},
            {"drop_pointers": [(d, seq)]},
            {"replace": [(d, seq, {})]},
        ]
        for changes in mistaken:
            with pytest.raises(Conflict):
                await store.commit(transaction(store, **changes))


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
