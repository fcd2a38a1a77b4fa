"""Random histories of what a store keeps beside its lanes, against a model of plain dicts: records, logs, timers, dead
letters, rates, outboxes, and what was left to a newer release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.base import FORM, Cell, Conflict, Dead, Key, Put, Store, Timer, TooLate
from gateway.testing.store_contract.helpers import event, later, many_histories, part, seqs, transaction

__all__ = ["PlainContract"]

Step = tuple[str, Any]
BURST = 3
KEPT, PASSES = 100.0, 60.0
"""Seconds: what is kept for so long is there after one step of time and gone after two."""
FOREVER = 1e12

names = st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.tuples(names, st.booleans())),
        st.tuples(st.just("delete"), names),
        st.tuples(st.just("expect"), st.tuples(names, st.integers(-1, 1))),
        st.tuples(st.just("too_late"), names),
        st.tuples(st.just("append"), names),
        st.tuples(st.just("read"), st.tuples(names, st.integers(0, 4), st.sampled_from([None, 0, 1, 3]))),
        st.tuples(st.just("set_timer"), st.tuples(names, st.sampled_from([10.0, 70.0]))),
        st.tuples(st.just("cancel"), names),
        st.tuples(st.just("pass_time"), st.just(PASSES)),
        st.tuples(st.just("bury"), names),
        st.tuples(st.just("replay"), names),
        st.tuples(st.just("drop"), names),
        st.tuples(st.just("take"), st.integers(1, BURST)),
        st.tuples(st.just("queue"), names),
        st.tuples(st.just("send"), names),
        st.tuples(st.just("leave"), st.integers(0, 2)),
    ),
    max_size=30,
)


@dataclass
class Kept:
    """A record as it was last written; its version outlives it."""

    value: int
    version: int
    ends: float
    gone: bool = False


@dataclass
class Plain:
    """What a store should hold of one history."""

    store: Store
    name: str
    now: float = 0.0
    records: dict[str, Kept] = field(default_factory=dict)
    logs: dict[str, list[int]] = field(default_factory=dict)
    timers: dict[str, tuple[float, int]] = field(default_factory=dict)
    pointed: list[tuple[int, int]] = field(default_factory=list)
    """What each decision says, and the form that whoever takes it must know."""
    letters: dict[str, int] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    taken: int = 0
    numbers: Any = field(default_factory=count)

    async def commit(self, **changes: Any) -> None:
        await self.store.commit(transaction(self.store, conversation=self.name, **changes))

    def named(self, name: str) -> str:
        return f"{self.name}/{name}"

    def version(self, name: str) -> int:
        kept = self.records.get(name)
        return 0 if kept is None or kept.gone or kept.ends <= self.now else kept.version

    async def put(self, step: tuple[str, bool]) -> None:
        name, ends = step
        before = self.records.get(name)
        value = next(self.numbers)
        await self.commit(puts={self.named(name): Put(value, KEPT if ends else None)})
        until = self.now + KEPT if ends else FOREVER
        self.records[name] = Kept(value, 1 if before is None else before.version + 1, until)

    async def delete(self, name: str) -> None:
        await self.commit(deletes=[self.named(name)])
        if name in self.records:
            self.records[name].gone = True

    async def expect(self, step: tuple[str, int]) -> None:
        """The right version goes through, and one beside it changes nothing."""
        name, beside = step
        version = self.version(name)
        changes: dict[str, Any] = {"expect": {self.named(name): version + beside}, "appends": [(self.named("a"), -1)]}
        if beside:
            with pytest.raises(Conflict):
                await self.commit(**changes)
        else:
            await self.commit(**changes)
            self.logs.setdefault("a", []).append(-1)

    async def too_late(self, name: str) -> None:
        with pytest.raises(TooLate):
            await self.commit(not_after=await later(self.store, -1), deletes=[self.named(name)])

    async def append(self, name: str) -> None:
        value = next(self.numbers)
        await self.commit(appends=[(self.named(name), value)])
        self.logs.setdefault(name, []).append(value)

    async def read(self, step: tuple[str, int, int | None]) -> None:
        name, after, last = step
        key = Key(self.store.partition(self.name), self.named(name))
        lines = list(enumerate(self.logs.get(name, []), start=1))[after:]
        lines = lines if last is None else lines[max(0, len(lines) - last) :]
        assert [(entry.seq, entry.value) for entry in await self.store.read(key, after=after, last=last)] == lines

    async def set_timer(self, step: tuple[str, float]) -> None:
        name, seconds = step
        body = next(self.numbers)
        arriving = event(self.name, self.named(f"timer {body}"), decides=True, body={"n": body})
        await self.commit(
            timers=[Timer(timer_id=self.named(name), due=await later(self.store, seconds), incoming=arriving)]
        )
        self.timers[name] = (self.now + seconds, body)

    async def cancel(self, name: str) -> None:
        await self.commit(cancel=[self.named(name)])
        self.timers.pop(name, None)

    async def pass_time(self, seconds: float) -> None:
        self.store.offset_seconds += seconds
        self.now += seconds
        await self.store.tick()
        due = sorted((at, body, name) for name, (at, body) in self.timers.items() if at <= self.now)
        for _, body, name in due:
            del self.timers[name]
            self.pointed.append((body, FORM))

    async def bury(self, name: str) -> None:
        body = next(self.numbers)
        held = event(self.name, self.named(f"letter {body}"), decides=True, body={"n": body})
        await self.commit(dead=[Dead(dead_id=self.named(name), conversation=self.name, reason="r", incoming=held)])
        self.letters[name] = body

    async def replay(self, name: str) -> None:
        assert await self.store.replay(self.named(name)) is (name in self.letters)
        if name in self.letters:
            self.pointed.append((self.letters.pop(name), FORM))

    async def drop(self, name: str) -> None:
        assert await self.store.drop(self.named(name)) is (self.letters.pop(name, None) is not None)

    async def take(self, cost: int) -> None:
        rate = Cell(name=self.named("rate"), burst=BURST, period_seconds=FOREVER / 1e3, cost=cost)
        fits = self.taken + cost <= BURST
        assert (await self.store.take([rate]) == 0.0) is fits
        self.taken += cost if fits else 0

    async def queue(self, name: str) -> None:
        await self.commit(parts=[part(self.named(name), self.name)])
        if name not in self.parts:
            self.parts.append(name)

    async def send(self, name: str) -> None:
        await self.commit(sent=[self.named(name)])
        self.parts = [waiting for waiting in self.parts if waiting != name]

    async def leave(self, number: int) -> None:
        found = await self.store.pointed(self.name)
        if number < len(found):
            await self.commit(leave=seqs([found[number]]), needs=FORM + 1)
            left = (int(str(found[number].body["n"])), FORM)
            self.pointed[self.pointed.index(left)] = (left[0], FORM + 1)

    async def check(self) -> None:
        """The store says of everything what the model does."""
        store, partition = self.store, self.store.partition(self.name)
        keys = {name: Key(partition, self.named(name)) for name in ("a", "b")}
        snapshot = await store.get(list(keys.values()))
        for name, key in keys.items():
            there = self.version(name)
            assert snapshot[key].version == there
            assert snapshot[key].value == (self.records[name].value if there else None)
        scanned = [key.name for key, _ in await store.scan(f"{self.name}/")]
        assert scanned == [key.name for name, key in keys.items() if self.version(name)]
        for knows in (FORM, FORM + 1):
            found = await store.pointed(self.name, knows=knows)
            assert [(waiting.body["n"], waiting.needs) for waiting in found] == [
                waiting for waiting in self.pointed if waiting[1] <= knows
            ]
        letters = {letter.dead_id for letter in await store.dead() if letter.conversation == self.name}
        assert letters == {self.named(name) for name in self.letters}
        assert [waiting.part_id for waiting in await store.outbox(self.name)] == list(map(self.named, self.parts))
        assert await store.has_work(self.name) is bool(self.parts)


class PlainContract:
    @many_histories
    @given(steps=STEPS)
    async def test_what_is_kept_is_what_the_model_says(self, store: Store, steps: Sequence[Step]) -> None:
        plain = Plain(store, f"plain {await store.now()}")
        for name, argument in steps:
            await getattr(plain, name)(argument)
            await plain.check()
