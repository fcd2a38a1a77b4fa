"""Random histories of a whole store, compared with a model of plain lists and dicts.

A history uses two conversations, of two pools, each with an action and a timer, and the records, logs and rates beside
them. Steps choose from the current state, so nearly every step has an effect.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

import pytest
from hypothesis import given

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced
from gateway.store.transaction import LogCut, Put, Timer
from gateway.store.types import Cell, Dead, Incoming, Key, Kind, Lease, QueuedPart
from gateway.testing.store_contract.helpers import event, later, many_histories, part, seqs, transaction
from gateway.testing.store_contract.history import HISTORIES, KEPT, PASSES, SORTS, HistoryState, Rest, Step, Waiter, Way
from gateway.testing.store_contract.plain import BURST, FOREVER, Item, Lane, LeaseQuery, Lines, Plain, Timed

PATIENCE, HASTE = 10.0, 0.2
"""The longest wait for an effect, in seconds of real time: PATIENCE, or HASTE while a failed history is shrunk."""


class History(HistoryState):
    """The steps of a history."""

    async def go(self, steps: Sequence[Step]) -> None:
        for name, arguments in steps:
            self.plain.step += 1
            await getattr(self, name)(*arguments)
            await self.serve_waiter()
        await self.check()

    # ───────────── events and parts ─────────────

    def arriving(self, name: str, sort: str, *event_ids: str) -> tuple[Incoming, Item]:
        body, options = next(self.numbers), SORTS[sort]
        incoming = event(self.named(name), *event_ids, body={"n": body}, keep_seconds=KEPT, **options)
        item = Item(
            body,
            options.get("wakes", True),
            options.get("decides", False),
            options.get("collects", False),
            about=options.get("about"),
        )
        return incoming, item

    async def accept(self, name: str, sort: str, number: int, inside: bool) -> None:
        event_id = self.named(f"{name}{number}")
        fresh = self.plain.is_new(event_id)
        incoming, item = self.arriving(name, sort, event_id)
        if inside:
            await self.commit(name, accept=[incoming])
        else:
            assert await self.store.accept([incoming]) == [fresh]
        if fresh:
            self.plain.seen[event_id] = self.plain.now + KEPT
            self.lane("turn", name).put(item, self.plain.at)

    def part(self, name: str, number: int) -> QueuedPart:
        return replace(part(self.named(f"{name}{number}"), self.named(name)), pool=name)

    async def queue(self, name: str, number: int) -> None:
        queued = self.part(name, number)
        await self.commit(name, parts=[queued])
        self.queued(name, Item(queued.part_id))

    def queued(self, name: str, item: Item) -> None:
        lane = self.lane("out", name)
        if item.name not in [waiting.name for waiting in lane.items]:
            lane.put(item, self.plain.at)

    async def send(self, name: str, number: int) -> None:
        part_id = self.part(name, number).part_id
        await self.commit(name, sent=[part_id])
        self.lane("out", name).remove([part_id], self.plain.at)

    async def launch(self, name: str) -> None:
        await self.commit(name, actions=[self.named(name)])
        self.lane("action", name).launch(Item(next(self.numbers)), self.plain.at)

    async def remember(self, name: str) -> None:
        body = next(self.numbers)
        assert await self.store.accept([event(self.lane_name("memory", name), kind="memory", body={"n": body})]) == [
            True
        ]
        self.lane("memory", name).put(Item(body), self.plain.at)

    async def signal(self, name: str, many: int) -> None:
        words = [f"word {next(self.numbers)}" for _ in range(many)]
        await self.commit(name, signals=[(self.named(name), word) for word in words])
        lane = self.lane("turn", name)
        if lane.held is not None:
            lane.signals += words
        await self.listen(lane)

    # ───────────── leases ─────────────

    async def lease(self, kinds: tuple[Kind, ...], only: str | None, pool: str, patient: bool) -> None:
        query = LeaseQuery(kinds, self.named(only) if only else None, pool)
        if ready := self.plain.first(query):
            await self.taken(ready, await self.ask(query))
        elif not patient or self.waiter is not None:
            assert await self.ask(query) is None
        else:
            self.waiter = Waiter(query, asyncio.create_task(self.ask(query, wait_seconds=3600.0)))
            for _ in range(20):
                await self.store.has_work(self.name)  # by now the waiter has looked once

    def deal(self, lane: Lane, lease: Lease, many: int) -> dict[str, Any]:
        """Return the fields for consuming the first items of a lease."""
        there = [item.name for item in lane.items]
        events = [found for found in lease.events if found.body["n"] in there][:many]
        sent = [found.part_id for found in lease.parts[:many]]
        if lane.kind != "action":
            lane.remove([*(found.body["n"] for found in events), *sent], self.plain.at)
        return {"consume": seqs(events), "sent": sent}

    async def work(self, number: int, many: int, checkpoint: bool) -> None:
        if (chosen := await self.held(number)) is None:
            return
        lane, lease = chosen
        steps = [f"step {next(self.numbers)}"] if checkpoint and lane.kind == "turn" else []
        await self.commit(of=lease, steps=steps, **self.deal(lane, lease, many))
        lane.steps += steps

    async def finish(
        self, number: int, outcome: Literal["done", "failed"], many: int, rest: Rest, seconds: float
    ) -> None:
        if (chosen := await self.held(number)) is None:
            return
        lane, lease = chosen
        if rest == "collect_until" and lane.kind != "turn":
            rest = "due"
        rests: dict[str, Any] = {rest: await later(self.store, seconds)} if rest else {}
        await self.commit(of=lease, finish=outcome, **rests, **self.deal(lane, lease, many))
        lane.finish(outcome, self.plain.at, **({rest: self.plain.later(seconds)} if rest else {}))

    async def renew(self, number: int) -> None:
        """Renew a lease. A lapsed lease is valid until another worker takes the lane."""
        if chosen := await self.held(number):
            chosen[0].lapsed = False
            await self.listen(chosen[0])

    async def die(self, number: int) -> None:
        if (chosen := await self.held(number)) is None:
            return
        lane, lease = chosen
        await self.store.renew(lease, lease_seconds=0.001)
        lane.lapsed = True
        await self.lapse(self.plain.stats().leased)

    async def zombie(self, number: int) -> None:
        gone = [lane.gone for lane in self.plain.lanes if lane.gone is not None]
        if gone:
            zombie = gone[number % len(gone)]
            with pytest.raises(Fenced):
                await self.store.renew(zombie)
            with pytest.raises(Fenced):
                changes: dict[str, Any] = {
                    "consume": seqs(zombie.events),
                    "sent": [found.part_id for found in zombie.parts],
                }
                await self.store.commit(transaction(self.store, of=zombie, finish="done", **changes))

    # ───────────── decisions ─────────────

    async def decide(self, name: str, number: int, way: Way) -> None:
        lane = self.lane("turn", name)
        expected = [item for item in lane.items if item.pointed]
        if not expected:
            return
        item = expected[number % len(expected)]
        waiting = await self.store.pending_decisions(self.named(name))
        chosen = seqs(found for found in waiting if found.body["n"] == item.name)
        body = next(self.numbers)
        changes: dict[str, dict[str, Any]] = {
            "consume": {"consume": chosen},
            "drop_pointers": {"drop_pointers": chosen},
            "replace": {"replace": [(*chosen[0], {"n": body})]},
        }
        await self.commit(name, **changes[way])
        match way:
            case "consume":
                lane.remove([item.name], self.plain.at)
            case "drop_pointers":
                item.pointed = False
                if item.wakes:
                    lane.wake(self.plain.at)
                else:
                    lane.rest(self.plain.at)
            case "replace":
                item.name = body
        if way in ("consume", "drop_pointers"):
            for again in (way, "drop_pointers"):
                with pytest.raises(Conflict):
                    await self.store.commit(transaction(self.store, conversation=lane.name, **changes[again]))

    # ───────────── time ─────────────

    async def pass_time(self, seconds: float = PASSES) -> None:
        plain = self.plain
        plain.now += seconds
        self.store.offset_seconds = self.began + plain.now
        await self.serve_waiter()
        plain.step += 1
        plain.fire_timers()
        wait = await self.store.run_timers()
        left = min((timed.due[0] - plain.now for timed in plain.timers.values()), default=None)
        assert (wait is None) == (left is None)
        assert wait is None or left is None or 0 < wait <= left

    async def set_timer(self, name: str, sort: str, seconds: float) -> None:
        incoming, item = self.arriving(name, sort)
        due = await later(self.store, seconds)
        await self.commit(name, timers=[Timer(timer_id=self.named(name), due=due, incoming=incoming)])
        self.plain.timers[name] = Timed(self.plain.later(seconds), self.lane("turn", name), item)

    async def cancel(self, name: str) -> None:
        await self.commit(name, cancel=[self.named(name)])
        self.plain.timers.pop(name, None)

    # ───────────── records, logs, rates and dead letters ─────────────

    async def put(self, name: str, ends: bool) -> None:
        value, key = next(self.numbers), self.named(name)
        expect = {key: self.plain.version(name)}
        await self.commit(expect=expect, puts={key: Put(value, KEPT if ends else None)})
        self.plain.put(name, value, self.plain.now + KEPT if ends else FOREVER)

    async def delete(self, name: str) -> None:
        await self.commit(deletes=[self.named(name)])
        if name in self.plain.records:
            self.plain.records[name].gone = True

    async def append(self, name: str) -> None:
        await self.write(name, cut=[])

    async def write(self, name: str, cut: list[LogCut]) -> None:
        """Append a line. The number of the line is the next number; in a log without lines, a number not used
        before."""
        lines, value = self.plain.logs.setdefault(name, Lines()), next(self.numbers)
        await self.commit(appends=[(self.named(name), value)], cut=cut)
        [entry] = await self.store.read(self.key(name), last=1)
        assert entry.value == value
        assert entry.seq == lines.last + 1 if lines.there else entry.seq > lines.last
        lines.there[entry.seq] = value
        lines.last = entry.seq

    async def read(self, name: str, after: int, last: int | None) -> None:
        lines = self.plain.logs.get(name, Lines())
        after += min(lines.there, default=1) - 1
        there = [entry for entry in lines.there.items() if entry[0] > after]
        there = there if last is None else there[max(0, len(there) - last) :]
        found = await self.store.read(self.key(name), after=after, last=last)
        assert [(entry.seq, entry.value) for entry in found] == there

    async def cut(self, name: str, after: int | None, keep: int, writes: bool) -> None:
        lines = self.plain.logs.setdefault(name, Lines())
        upto = None if after is None else min(lines.there, default=1) - 1 + after
        cut = [LogCut(log=self.named(name), upto=upto, keep=keep)]
        lines.cut(upto, keep)
        if writes:
            await self.write(name, cut)
        else:
            await self.commit(cut=cut)
        await self.read(name, 0, None)

    def key(self, name: str) -> Key:
        return Key(self.store.partition(self.named("a")), self.named(name))

    async def take(self, cost: int) -> None:
        rate = Cell(name=self.named("rate"), burst=BURST, period_seconds=FOREVER / 1e3, cost=cost)
        fits = self.plain.taken + cost <= BURST
        assert (await self.store.acquire([rate]) == 0.0) is fits
        self.plain.taken += cost if fits else 0

    async def bury(self, name: str, is_part: bool, number: int) -> None:
        incoming, item = self.arriving(name, "message", self.named(f"{name}{number}"))
        held: dict[str, Any] = {"incoming": incoming}
        if is_part:
            queued = self.part(name, number % 4)
            held, item = {"part": queued}, Item(queued.part_id)
        letter = Dead(dead_id=self.named(name), conversation=self.named(name), reason="r", **held)
        await self.commit(name, dead=[letter])
        self.plain.letters[name] = (None if is_part else f"{name}{number}", item)

    async def replay(self, name: str) -> None:
        assert await self.store.replay(self.named(name)) is (name in self.plain.letters)
        if name in self.plain.letters:
            event_id, item = self.plain.letters.pop(name)
            if event_id is None:
                self.queued(name, item)
            else:
                self.plain.seen[self.named(event_id)] = self.plain.now + KEPT
                self.lane("turn", name).put(item, self.plain.at)

    async def drop(self, name: str) -> None:
        assert await self.store.drop(self.named(name)) is (self.plain.letters.pop(name, None) is not None)

    # ───────────── checks ─────────────

    async def check(self) -> None:
        """Check the store's state against the model."""
        store, plain = self.store, self.plain
        kinds = Counter(self.named(name).partition("/")[0] for name in plain.timers)
        expected = replace(plain.stats(), timer_kinds=kinds)
        assert replace(await store.stats(), oldest_waiting_seconds=0.0) == expected
        snapshot = await store.get([self.key(name) for name in "ab"])
        for name in "ab":
            there = plain.version(name)
            assert snapshot[self.key(name)].version == there
            assert snapshot[self.key(name)].value == (plain.records[name].value if there else None)
            turn, out = self.lane("turn", name), self.lane("out", name)
            found = await store.pending_decisions(turn.name)
            assert [waiting.body["n"] for waiting in found] == [item.name for item in turn.items if item.pointed]
            assert [waiting.part_id for waiting in await store.outbox(out.name)] == [item.name for item in out.items]
            assert await store.has_work(out.name) is bool(turn.work or out.items)
        scanned = [key for key, _ in await store.scan(f"{self.name}/")]
        assert scanned == [self.key(name) for name in "ab" if plain.version(name)]
        logs = {self.key(name) for name, lines in plain.logs.items() if lines.there}
        assert set(await store.logs(f"{self.name}/")) == logs
        assert {letter.dead_id for letter in await store.dead_letters()} == set(map(self.named, plain.letters))

    async def clear(self) -> None:
        """Remove all work available to another history, however this history ended."""
        store = self.store
        await self.give_up()
        for lane in self.plain.lanes:
            if lane.held is not None:
                with suppress(Fenced):
                    await store.renew(lane.held, lease_seconds=0.001)
        self.plain.now += 10 * PASSES
        await self.lapse(0)
        for name in "ab":
            conversation = self.named(name)
            await store.drop(conversation)
            sent = [waiting.part_id for waiting in await store.outbox(conversation)]
            changes: dict[str, Any] = {"cancel": [conversation], "sent": sent, "actions": [conversation]}
            arriving = [event(conversation, body={"n": -1})]
            await store.commit(transaction(store, conversation=conversation, accept=arriving, **changes))
            await store.accept([event(self.lane_name("memory", name), kind="memory", body={"n": -1})])
            for kind in ("turn", "action", "memory"):
                query = LeaseQuery((kind,), self.lane_name(kind, name))
                lease = await self.ask(query, wait_seconds=self.patience)
                assert lease is not None
                await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))


@dataclass(slots=True)
class Trials:
    """The histories of a test. All share the test's store, each with separate names."""

    numbers: Iterator[int] = field(default_factory=count)
    patience: float = PATIENCE


class ModelContract:
    @pytest.fixture
    def trials(self) -> Trials:
        return Trials()

    @many_histories
    @given(steps=HISTORIES)
    async def test_any_history_goes_as_the_model_says(
        self, store: Store, trials: Trials, steps: Sequence[Step]
    ) -> None:
        history = History(store, str(next(trials.numbers)), trials.patience)
        try:
            await history.go(steps)
        except BaseException:
            trials.patience = HASTE
            with suppress(Exception):
                await history.clear()
            raise
        await history.clear()
        assert replace(await store.stats(), leased=0, oldest_waiting_seconds=0.0) == Plain().stats()
