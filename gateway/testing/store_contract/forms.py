"""Forms: work of a newer release is left to a worker of that release, which alone finds it, and is not lost."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced
from gateway.store.form import FORM
from gateway.store.types import Kind
from gateway.testing.store_contract.helpers import arrive, event, later, part, seqs, take, transaction

__all__ = ["FormsContract"]

NEWER = FORM + 1
SHORT = 0.02


class FormsContract:
    @pytest.mark.parametrize("kind", ["turn", "action", "out"])
    async def test_a_lane_that_was_left_is_for_whoever_knows_its_form(self, store: Store, kind: Kind) -> None:
        await arrive(store)
        await store.commit(transaction(store, parts=[part("p")], actions=["act"]))
        held = await take(store, kind)
        await store.commit(transaction(store, of=held, finish="left", requires_form=NEWER))
        lane = held.lane
        assert await store.lease("older", [kind], wait_seconds=SHORT) is None
        assert await store.lease("older", [kind], only=lane) is None
        stats = await store.stats()
        assert (stats.ready, stats.leased, stats.parked) == (2, 0, 1)
        newer = await store.lease("newer", [kind], knows=NEWER)
        assert newer is not None
        assert (newer.lane, newer.events, newer.parts) == (lane, held.events, held.parts)
        assert (newer.tries, newer.died) == (0, False)
        with pytest.raises(Fenced):
            await store.renew(held)
        await store.commit(transaction(store, of=newer, finish="left", requires_form=NEWER + 1))
        assert await store.lease("newer", [kind], knows=NEWER) is None
        assert await store.lease("newest", [kind], only=lane, knows=NEWER + 1) is not None

    async def test_left_lane_keeps_its_steps_and_tries(self, store: Store) -> None:
        await arrive(store)
        first = await take(store)
        await store.commit(transaction(store, of=first, steps=["one"]))
        await store.renew(first, lease_seconds=SHORT)
        second = await take(store, wait_seconds=5)
        await store.commit(transaction(store, of=second, finish="left", requires_form=NEWER))
        newer = await take(store, knows=NEWER)
        assert (
            (newer.steps, newer.tries, newer.died) == (second.steps, second.tries, second.died) == (("one",), 1, True)
        )
        assert [waiting.tries for waiting in newer.events] == [1]

    async def test_what_comes_later_waits_behind_it(self, store: Store) -> None:
        await arrive(store, body={"n": 1})
        held = await take(store)
        await store.commit(transaction(store, of=held, finish="left", requires_form=NEWER))
        await arrive(store, body={"n": 2})
        await arrive(store, "another")
        assert (await take(store)).lane == "another"
        assert await store.lease("older", ["turn"]) is None
        newer = await take(store, knows=NEWER)
        assert [waiting.body["n"] for waiting in newer.events] == [1, 2]

    async def test_left_outbox_stays_left_when_its_parts_change(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("p")]))
        await store.commit(transaction(store, of=await take(store, "out"), finish="left", requires_form=NEWER))
        await store.commit(transaction(store, sent=["p"]))
        assert (await store.stats()).parked == 0
        await store.commit(transaction(store, parts=[part("q")]))
        assert await store.lease("older", ["out"]) is None
        assert [queued.part_id for queued in (await take(store, "out", knows=NEWER)).parts] == ["q"]

    async def test_when_a_newer_worker_is_gone_an_older_may_look_again(self, store: Store) -> None:
        await arrive(store)
        await store.commit(transaction(store, of=await take(store), finish="left", requires_form=NEWER))
        await take(store, knows=NEWER, lease_seconds=SHORT)
        assert (await take(store, wait_seconds=5)).died

    async def test_newer_worker_is_woken_for_older_and_newer_work(self, store: Store) -> None:
        waiting = asyncio.create_task(store.lease("newer", ["turn"], wait_seconds=5, knows=NEWER))
        await arrive(store)
        lease = await waiting
        assert lease is not None
        waiting = asyncio.create_task(store.lease("newer", ["turn"], wait_seconds=5, knows=NEWER))
        await asyncio.sleep(0)
        await store.commit(transaction(store, of=lease, finish="left", requires_form=NEWER))
        assert await waiting is not None

    async def test_a_lane_that_was_left_is_due_when_it_was(self, store: Store) -> None:
        await arrive(store)
        held = await take(store)
        await store.commit(transaction(store, of=held, finish="failed", due=await later(store, 60)))
        assert await store.lease("newer", ["turn"], knows=NEWER) is None
        store.offset_seconds = 61
        await store.commit(transaction(store, of=await take(store), finish="left", requires_form=NEWER))
        assert (await take(store, knows=NEWER)).tries == 1

    async def test_left_decision_is_found_by_a_worker_that_knows_its_form(self, store: Store) -> None:
        await store.accept([event(decides=True, body={"n": n}) for n in range(3)])
        first, *_ = found = await store.pending_decisions("c")
        leave = transaction(store, defer_decisions=seqs([first]), requires_form=NEWER)
        await store.commit(leave)
        for conversation in ("c", None):
            assert [waiting.body["n"] for waiting in await store.pending_decisions(conversation)] == [1, 2]
            newer = await store.pending_decisions(conversation, knows=NEWER)
            assert [(waiting.body["n"], waiting.needs) for waiting in newer] == [(0, NEWER), (1, 1), (2, 1)]
        assert [waiting.body["n"] for waiting in await store.pending_decisions(limit=1, knows=NEWER)] == [0]
        assert (await store.stats()).pointed == 2
        await arrive(store)
        assert [(waiting.pointed, waiting.needs) for waiting in (await take(store)).events][:2] == [
            (True, NEWER),
            (True, 1),
        ]
        await store.commit(transaction(store, drop_pointers=seqs([first]), consume=seqs(found[1:])))
        assert await store.pending_decisions(knows=NEWER) == []
        with pytest.raises(Conflict):
            await store.commit(leave)

    async def test_a_decision_that_was_left_is_worked_like_any_other(self, store: Store) -> None:
        await store.accept([event(decides=True)])
        chosen = seqs(await store.pending_decisions())
        await store.commit(transaction(store, defer_decisions=chosen, requires_form=NEWER))
        await store.commit(transaction(store, consume=chosen))
        assert await store.pending_decisions(knows=NEWER) == []
        assert (await store.stats()).waiting == 0
