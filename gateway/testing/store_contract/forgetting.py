"""Forgetting of lanes, and of names with a subject. Rewriting of lines with another value."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.transaction import LogCut, Put, Timer
from gateway.store.types import Cell, Dead, Forgotten, Key, Prefetch, Spending
from gateway.testing.store_contract.helpers import event, later, makes_ready, near, part, take, transaction

SUBJECT = "person:1:4"
OTHER = "person:1:42"


async def fill(store: Store, lane: str) -> None:
    """Write data of every kind about a lane in the lane's partition."""
    timer = Timer(timer_id=f"t/{lane} x", due=await later(store, 60), incoming=event(lane))
    await store.accept([event(lane, f"e {lane}"), event(lane, decides=True), event(lane, wakes=False, about="x")])
    await store.commit(
        transaction(
            store,
            conversation=lane,
            puts={f"r/{lane}": Put(1), f"ttl/{lane}": Put(1, 60), f"gone/{lane}": Put(1)},
            appends=[(f"log/{lane}", 1), (f"log/{lane}", 2)],
            parts=[part(f"p {lane}", lane), part(f"q {lane}", lane)],
            timers=[timer],
            spends=[Spending(name=f"spent/{lane}", amounts={"n": 1}, keep_seconds=60)],
            dead=[Dead(dead_id=f"d {lane}", conversation=lane, reason="broken", incoming=event(lane))],
        )
    )
    lease = await take(store, only=lane)
    await store.commit(transaction(store, of=lease, steps=[1], finish="failed"))
    await store.commit(transaction(store, conversation=lane, deletes=[f"gone/{lane}"]))


async def shown(store: Store, lane: str) -> dict[str, Any]:
    """Return all data of a lane, as read from the store."""
    partition, names = store.partition(lane), [f"r/{lane}", f"ttl/{lane}", f"gone/{lane}"]
    records = await store.get([Key(partition, name) for name in names])
    return {
        "mailbox": len(await store.mailbox(lane)),
        "decisions": len(await store.pending_decisions(lane)),
        "outbox": len(await store.outbox(lane)),
        "has_work": await store.has_work(lane),
        "records": [records[Key(partition, name)].value for name in names],
        "lines": [entry.value for entry in await store.read(Key(partition, f"log/{lane}"))],
        "timers": len(await store.timers(lane)),
        "spent": (await store.spent([f"spent/{lane}"]))[0],
        "dead": [letter.dead_id for letter in await store.dead_letters() if letter.conversation == lane],
    }


WHOLE = {"records": 2, "lines": 2, "events": 3, "parts": 2, "timers": 1, "dead letters": 1, "counts": 1}
NOTHING: dict[str, Any] = {
    "mailbox": 0,
    "decisions": 0,
    "outbox": 0,
    "has_work": False,
    "records": [None, None, None],
    "lines": [],
    "timers": 0,
    "spent": {},
    "dead": [],
}


class ForgettingContract:
    async def test_a_lane_is_forgotten_with_all_of_it(self, store: Store) -> None:
        for lane in ("c", "cc", "c/1"):
            await fill(store, lane)
        before = {lane: await shown(store, lane) for lane in ("cc", "c/1")}
        assert await store.forget(Forgotten(lanes=frozenset({"c"}))) == WHOLE
        assert await shown(store, "c") == NOTHING
        assert {lane: await shown(store, lane) for lane in before} == before
        assert await store.forget(Forgotten(lanes=frozenset({"c"}))) == {}
        stats = await store.stats()
        assert (stats.waiting, stats.pointed, stats.parts, stats.timers, stats.dead) == (4, 2, 4, 2, 2)
        assert await store.forget(Forgotten(lanes=frozenset({"cc", "c/1"}))) == {n: 2 * v for n, v in WHOLE.items()}
        assert (await store.stats()).ready == (await store.stats()).parked == 0

    async def test_a_forgotten_lane_begins_anew(self, store: Store) -> None:
        await fill(store, "c")
        await store.forget(Forgotten(lanes=frozenset({"c"})))
        assert await store.accept([event("c", "new")]) == [True]
        await store.commit(transaction(store, puts={"r/c": Put(2)}, expect={"r/c": 0}, appends=[("log/c", 3)]))
        lease = await take(store, prefetch=Prefetch(records=("r",), log="log", last=9))
        assert (lease.steps, lease.tries, lease.died, len(lease.events), lease.lines) == ((), 0, False, 1, ("3",))

    @pytest.mark.parametrize("kind", ["turn", "memory", "out", "action"])
    async def test_a_lane_that_is_leased_is_not_forgotten(self, store: Store, kind: Any) -> None:
        await store.commit(transaction(store, puts={"r/c": Put(1)}, **makes_ready(kind, "c")))
        lease = await take(store, kind)
        forgotten = Forgotten(lanes=frozenset({"c"}))
        with pytest.raises(Conflict, match="c is leased"):
            await store.forget(forgotten)
        await store.commit(transaction(store, of=lease, finish="failed"))
        assert (await store.forget(forgotten))["records"] == 1
        assert (await store.stats()).ready == 0

    async def test_a_subject_is_a_whole_part_of_a_name(self, store: Store) -> None:
        names = [f"a/{SUBJECT}", SUBJECT, f"{SUBJECT}/b", f"a/{SUBJECT}/b"]
        others = [f"a/{OTHER}", f"a/{SUBJECT}:7", f"a{SUBJECT}", "a"]
        for name in (*names, *others):
            amounts = [Spending(name=name, amounts={"n": 1}, keep_seconds=60)]
            timer = Timer(timer_id=name, due=await later(store, 60), incoming=event())
            await store.commit(
                transaction(store, puts={name: Put(1)}, appends=[(name, 1)], spends=amounts, timers=[timer])
            )
        gone = await store.forget(Forgotten(subjects=frozenset({SUBJECT}), kept=frozenset({f"{SUBJECT}/b"})))
        assert gone == {"records": 3, "lines": 3, "timers": 3, "counts": 3}
        kept = {*others, f"{SUBJECT}/b"}
        assert {key.name for key, _ in await store.scan("")} == kept
        assert {key.name for key in await store.logs("")} == kept
        assert {timer.timer_id for timer in await store.timers("c")} == kept
        assert (await store.all_spent("")).keys() == kept

    async def test_event_ids_and_rates_with_a_subject_go(self, store: Store) -> None:
        ids = [f"{SUBJECT}:message", f"{SUBJECT}/press", f"{OTHER}:message", f"x {SUBJECT}"]
        cells = [Cell(name=f"rate/{name}", burst=1, period_seconds=1000) for name in (SUBJECT, OTHER)]
        for event_id in ids:
            await store.accept([event("c", event_id)])
        for cell in cells:
            await store.acquire([cell])
        assert await store.forget(Forgotten(subjects=frozenset({SUBJECT}))) == {}
        assert [fresh for each in ids for fresh in await store.accept([event("c", each)])] == [True, True, False, False]
        assert [bool(await store.acquire([cell])) for cell in cells] == [False, True]

    async def test_timers_of_a_conversation_are_found(self, store: Store) -> None:
        due = await later(store, 60)
        wanted = Timer(timer_id="t", due=due, incoming=event("c", "e", body={"n": 1}))
        others = [Timer(timer_id=f"o{n}", due=due, incoming=event(near(store, f"o{n}"))) for n in range(600)]
        await store.commit(transaction(store, timers=[*others, wanted]))
        assert await store.timers("c") == [wanted]
        assert await store.timers("none") == []
        assert {timer.timer_id for timer in await store.timers()} == {"t", *(f"o{n}" for n in range(600))}

    async def test_a_line_gets_another_value(self, store: Store) -> None:
        log = Key(store.partition("c"), "log")
        await store.commit(transaction(store, appends=[("log", value) for value in "abcd"]))
        before = await store.read(log)
        numbers = [entry.seq for entry in before]
        await store.commit(transaction(store, cut=[LogCut(log="log", upto=numbers[0])]))
        changed = [("log", number, {"new": number}) for number in (*numbers[:3], numbers[-1] + 9, 0)]
        await store.commit(transaction(store, rewrite=[*changed, ("none", 1, "x")]))
        after = await store.read(log)
        assert [entry.value for entry in after] == [{"new": numbers[1]}, {"new": numbers[2]}, "d"]
        assert [(entry.seq, entry.stamp) for entry in after] == [(entry.seq, entry.stamp) for entry in before[1:]]
        assert await store.read(Key(store.partition("c"), "none")) == []
