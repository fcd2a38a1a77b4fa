"""Hand-over: a commit in one partition brings an event into the mailbox of another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.types import Incoming, Waiting
from gateway.testing.store_contract.helpers import event, later, take, transaction

_NAMES = tuple(f"to {number}" for number in range(24))
"""Conversations of several partitions, in a store that has them."""


async def _handed(store: Store, conversation: str, *event_ids: str, **options: object) -> Incoming:
    """Return an event that was received five seconds ago."""
    stamp = await later(store, -5)
    return event(conversation, *event_ids, stamp=stamp, **options)


async def _arrived(store: Store, conversation: str) -> list[Waiting]:
    await store.run_timers()
    return await store.mailbox(conversation)


class HandoverContract:
    async def test_a_handed_event_arrives_with_its_first_stamp(self, store: Store) -> None:
        events = [await _handed(store, name, f"vote {name}", body={"to": name}) for name in _NAMES]
        await store.commit(transaction(store, conversation="from", hand_over=events))
        for handed in events:
            [waiting] = await _arrived(store, handed.conversation)
            assert (waiting.stamp, waiting.body) == (handed.stamp, {"to": handed.conversation})
        assert (await store.stats()).timers == 0

    async def test_a_handed_event_makes_its_conversation_ready(self, store: Store) -> None:
        await store.commit(transaction(store, hand_over=[await _handed(store, name, name) for name in _NAMES]))
        await store.run_timers()
        leased = [(await take(store)).lane for _ in _NAMES]
        assert sorted(leased) == sorted(_NAMES)

    async def test_a_handed_event_may_decide(self, store: Store) -> None:
        votes = [await _handed(store, name, name, decides=True, wakes=False) for name in _NAMES]
        await store.commit(transaction(store, hand_over=votes))
        await store.run_timers()
        assert len(await store.pending_decisions()) == len(_NAMES)

    async def test_an_event_that_is_handed_again_is_a_twin(self, store: Store) -> None:
        for name in _NAMES[:4]:
            handed = await _handed(store, name, f"vote {name}")
            for _ in range(3):
                await store.commit(transaction(store, hand_over=[replace(handed)]))
            assert len(await _arrived(store, name)) == 1
            assert await store.accept([event(name, f"vote {name}")]) == [False]

    async def test_many_that_relay_bring_an_event_once(self, store: Store) -> None:
        async def hand(number: int) -> None:
            handed = [await _handed(store, name, f"{number} {name}") for name in _NAMES[:4]]
            await store.commit(transaction(store, conversation=f"from {number}", hand_over=handed))
            await store.run_timers()

        await asyncio.gather(*map(hand, range(10)))
        for name in _NAMES[:4]:
            assert len(await _arrived(store, name)) == 10

    async def test_a_commit_that_fails_hands_nothing_over(self, store: Store) -> None:
        handed = [await _handed(store, name, name) for name in _NAMES]
        with pytest.raises(Conflict):
            await store.commit(transaction(store, expect={"absent": 1}, hand_over=handed))
        for name in _NAMES:
            assert await _arrived(store, name) == []

    async def test_a_full_mailbox_refuses_no_handed_event(self, store: Store) -> None:
        for number in range(40):
            await store.accept([event(_NAMES[0], f"waits {number}")])
        await store.commit(transaction(store, conversation="from", hand_over=[await _handed(store, _NAMES[0], "vote")]))
        assert len(await _arrived(store, _NAMES[0])) == 41

    async def test_a_handed_event_needs_ids_and_a_stamp(self, store: Store) -> None:
        now = await store.now()
        for wrong in (
            event("c", stamp=now),
            event("c", "vote"),
            event("c", "vote", stamp=now, refusable=True),
        ):
            with pytest.raises(ValueError, match="handed over"):
                await store.commit(transaction(store, hand_over=[wrong]))

    async def test_a_handed_event_keeps_its_order_by_stamp(self, store: Store) -> None:
        """Two that are handed over in one commit to one conversation arrive in the order of their stamps."""
        first, now = await later(store, -60), await store.now()
        stamps = [first + timedelta(seconds=number) for number in range(5)]
        assert stamps[-1] < now
        handed = [event(_NAMES[1], f"vote {n}", stamp=stamp, body={"n": n}) for n, stamp in enumerate(stamps)]
        await store.commit(transaction(store, conversation="from", hand_over=handed))
        assert [waiting.body["n"] for waiting in await _arrived(store, _NAMES[1])] == [0, 1, 2, 3, 4]
