"""A store call fails at any place of a whole story: no message is lost, no effect happens twice.

Each run lets every fourth call fail, from another place in each story; `make nightly` lets each call fail.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal, get_args

import pytest

from gateway.engine import retrying
from gateway.engine.retrying import attempts
from gateway.store.errors import Conflict, StoreUnavailable
from gateway.wording import say
from tests.machine.places import OnRedis, OnSqlite, Places
from tests.machine.things import TTL
from tests.machine.world import LEASE, World

ONE = "ana"
EVERY = 4
"""The distance of the failing calls of a story in each run."""
Ending = Literal["pressed", "expired", "opted out"]
ENDINGS = get_args(Ending)


class Story:
    """Ana asks, is asked, and presses the button, lets the question expire, or opts out; she is told. A call of the
    process fails."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wire = world.workers[0].wire

    async def runs(self, ending: Ending = "pressed") -> None:
        await self.world.asks(ONE, ONE, "pay", ["INV-0"])
        await self._until(lambda: self.world.witness.tokens)
        match ending:
            case "pressed":
                await self.world.presses(ONE, ONE, next(iter(self.world.witness.tokens)))
            case "expired":
                self.world.jump(TTL + 1)
            case "opted out":
                await self.world.opts(ONE, out=True)
        await self._until(lambda: len(self.world.witness.shown) > 1)
        self.world.jump(LEASE)
        await self.world.work_off()
        if ending == "opted out":
            await self.world.opts(ONE, out=False)
            await self.world.work_off()
            self.world.jump(LEASE)
            await self.world.work_off()

    async def _until(self, there: Callable[[], object]) -> None:
        for _ in range(3):
            await self.world.work_off()
            if there():
                return
            self.world.jump(LEASE)

    @property
    def seen(self) -> list[tuple[str, bool, bool]]:
        """Return each message in the final form, without the note on possible duplicates: no message is a duplicate."""
        return [
            (re.sub(r"\b(OK|NO) [0-9A-Z]{4}\b", r"\1", shown.text), bool(shown.buttons), shown.edited)
            for shown in self.world.witness.shown
            if shown.text != say("may_be_duplicate", "en")
        ]


@contextlib.asynccontextmanager
async def story(files: Path, place: OnSqlite | OnRedis, *, alone: bool) -> AsyncIterator[Story]:
    world = World(files, place)
    if alone:
        world.workers[1] = world.workers[0]
    await world.open()
    try:
        yield Story(world)
    finally:
        await world.close()


each_at_night = pytest.mark.parametrize(
    "each", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["every fourth call", "each call"]
)


def chosen(calls: int, *, each: bool, first: int) -> range:
    """Return the numbers of the failing calls, each for a separate story."""
    return range(1, calls + 1) if each else range(1 + first % EVERY, calls + 1, EVERY)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("nobody_waits_long")
@each_at_night
@pytest.mark.parametrize("answer_lost", [False, True], ids=["before it took effect", "after it took effect"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_story_survives_a_failed_store_call(
    places: Places, tmp_path: Path, ending: Ending, answer_lost: bool, each: bool
) -> None:
    async with story(tmp_path, places(), alone=True) as undisturbed:
        await undisturbed.runs(ending)
        effects = ["pay"] if ending == "pressed" else []
        assert [effect.tool for effect in undisturbed.world.witness.effects] == effects
        assert len(undisturbed.seen) > 1
    calls = undisturbed.wire.calls.total()
    assert calls > 20
    for number in chosen(calls, each=each, first=ENDINGS.index(ending) + 2 * answer_lost):
        async with story(tmp_path, places(), alone=True) as disturbed:
            wire = disturbed.wire
            wire.calls_left, wire.last_answer_lost, wire.recovers = number, answer_lost, True
            await disturbed.runs(ending)
            if ending != "opted out":  # an opted-out person is not told the outcome
                await disturbed.world.check_the_end()
            assert disturbed.world.witness.violations == [], number
            assert [effect.tool for effect in disturbed.world.witness.effects] == effects, number
            assert disturbed.seen == undisturbed.seen, number
            assert wire.calls_left is None, number


@pytest.mark.both_stores
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("nobody_waits_long")
@each_at_night
@pytest.mark.parametrize("answer_lost", [False, True], ids=["before it took effect", "after it took effect"])
async def test_story_survives_the_death_of_a_process_at_a_store_call(
    places: Places, tmp_path: Path, kept_on: str, answer_lost: bool, each: bool
) -> None:
    """Another process takes over. Only an effect that may have happened is told as unknown."""
    async with story(tmp_path, places(), alone=False) as undisturbed:
        await undisturbed.runs()
    calls = undisturbed.wire.calls.total()
    for number in chosen(calls, each=each, first=(kept_on == "redis") + 2 * answer_lost):
        async with story(tmp_path, places(), alone=False) as disturbed:
            disturbed.wire.calls_left, disturbed.wire.last_answer_lost = number, answer_lost
            await disturbed.runs()
            await disturbed.world.check_the_end()
            assert disturbed.world.witness.violations == [], number
            assert disturbed.wire.is_cut, number
            texts = [text for text, _, _ in disturbed.seen]
            happened = [effect.tool for effect in disturbed.world.witness.effects] == ["pay"]
            assert happened or any("may or may not have happened" in text for text in texts), number


async def test_a_conflict_is_tried_again_and_success_ends_it() -> None:
    tried = 0
    for attempt in attempts():
        async with attempt:
            tried += 1
            if tried < 3:
                raise Conflict("read again")
    assert tried == 3


async def test_after_fifty_conflicts_the_error_is_raised() -> None:
    tried = 0
    with pytest.raises(Conflict):
        for attempt in attempts():
            async with attempt:
                tried += 1
                raise Conflict("for ever")
    assert tried == 51


async def test_absent_store_is_raised_and_retried_only_with_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "_WAITS_SECONDS", (0.0, 0.0))
    for patient, times in ((False, 1), (True, 3)):
        tried = 0
        with pytest.raises(StoreUnavailable):
            for attempt in attempts(patient=patient):
                async with attempt:
                    tried += 1
                    raise StoreUnavailable("away")
        assert tried == times


async def test_an_unanswered_commit_is_known_to_every_later_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "_WAITS_SECONDS", (0.0,))
    known: list[bool] = []
    for attempt in attempts(patient=True):
        async with attempt:
            known.append(attempt.outcome_unknown)
            if len(known) == 1:
                raise Conflict("read again")
            if len(known) == 2:
                raise StoreUnavailable("no answer")
            if len(known) == 3:
                raise Conflict("read again")
    assert known == [False, False, True, True]


async def test_store_away_on_the_last_conflict_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole at the end of a turn: both errors at once left the loop, without any commit."""
    monkeypatch.setattr(retrying, "_CONFLICTS", 1)
    monkeypatch.setattr(retrying, "_WAITS_SECONDS", (0.0,))
    errors = iter([Conflict("read again"), StoreUnavailable("away")])
    committed = False
    for attempt in attempts(patient=True):
        async with attempt:
            if (error := next(errors, None)) is not None:
                raise error
            committed = True
    assert committed


async def test_other_errors_are_raised_at_once() -> None:
    with pytest.raises(ValueError, match="wrong"):
        for attempt in attempts(patient=True):
            async with attempt:
                raise ValueError("wrong")
