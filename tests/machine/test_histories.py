"""Random histories of people, platforms and processes, and the rules for each history.

No effect without a valid decision of enough people, or a permission. No effect twice without leave to repeat. The
arguments are the shown ones. The end of every shown action is reported, in every chat.
"""

from __future__ import annotations

import copy
import hashlib
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import FlakyFailure, FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from gateway.pending import transitions
from gateway.store.errors import Fenced
from gateway.store.redis import scripts
from gateway.store.sqlite import leases
from gateway.store.types import Lease
from tests.machine import defects
from tests.machine.machine import Ground, Machine, Violated
from tests.machine.places import Places
from tests.machine.rooms import Allowing, Approving, Changing, Planning, Rooms, TakingBack
from tests.machine.world import World

pytestmark = pytest.mark.usefixtures("nobody_waits_long")


HISTORIES, FEW, FEWER = 10, 5, 2
"""The histories of one seed: at night, and in each run on SQLite and on Redis."""
STEPS = 40
_MINUTES = 8.0
_MOST_SEEDS = 5


def play(places: Places, number: int, kind: type[Ground] = Rooms, *, count: int = HISTORIES) -> None:
    """Play `count` histories. An equal `number` gives equal histories. Raises Violated."""
    many = settings(
        max_examples=count,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for attempt in range(_MOST_SEEDS):
        machine: Any = seed(number + 100_000 * attempt)(lambda: kind(places()))
        try:
            return run_state_machine_as_test(machine, settings=many)
        except FlakyFailure as flaky:  # two workers raced: played again to be told, the history went well
            raise next((each for each in flaky.exceptions if isinstance(each, Violated)), flaky) from None
        except FlakyStrategyDefinition:
            continue  # a race changed which steps were possible in a history that began as an earlier one
    raise AssertionError(f"{_MOST_SEEDS} seeds began histories that raced")


@pytest.mark.ledger("PEND-19", "PEND-20")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kept_on", "number", "count"),
    [
        *(("sqlite", number, FEW) for number in (1, 2)),
        ("redis", 1, FEWER),
        *(pytest.param("sqlite", number, HISTORIES, marks=pytest.mark.nightly) for number in (1, 2, 3, 4)),
        pytest.param("redis", 1, HISTORIES, marks=pytest.mark.nightly),
    ],
    indirect=["kept_on"],
)
def test_random_histories_violate_no_rule(places: Places, number: int, count: int) -> None:
    play(places, number, count=count)


DEFECTS_OF_ROOMS = {
    Approving: defects.OF_APPROVING,
    Planning: defects.OF_PLANNING,
    Changing: defects.OF_CHANGING,
    TakingBack: defects.OF_TAKING_BACK,
    Allowing: defects.OF_ALLOWING,
}
LONG = [defects.seal_off, defects.launch_twice, defects.twin_accepted, defects.event_of_another_person]
"""Planted on Redis. `token_of_another_chat` is harmless there: a commit is of one partition, the chats of three."""


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kept_on", "plant"),
    [
        *(pytest.param("sqlite", plant) for plant in defects.OF_ACTIONS),
        *(pytest.param("redis", plant) for plant in [defects.window_ignored, *LONG]),
    ],
    indirect=["kept_on"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_planted_defect_is_found_by_the_machine(
    plant: Callable[[pytest.MonkeyPatch], None], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violated):
        play(places, 5, Machine, count=400)


SEEDS: dict[Callable[[pytest.MonkeyPatch], None], int] = {defects.permission_of_another: 1}
"""The seeds that find a defect soon; 5 for all others."""


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kept_on", "room", "plant"),
    [
        (kind, room, plant)
        for room, plants in DEFECTS_OF_ROOMS.items()
        for plant in plants
        for kind in ("sqlite", "redis")
    ],
    indirect=["kept_on"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_planted_defect_of_a_room_is_found(
    room: type[Ground],
    plant: Callable[[pytest.MonkeyPatch], None],
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violated):
        play(places, SEEDS.get(plant, 5), room, count=400)


async def two_workers_and_one_effect(files: Path, places: Places) -> AsyncIterator[list[str]]:
    """A worker stops before its launch, at each possible place; another takes over; then the first goes on."""
    for calls in range(1, 12):
        world = World(files, places())
        await world.open()
        await world.asks("ana", "ana", "pay", ["INV-0"])
        await world.work_off()
        await world.presses("ana", "ana", next(iter(world.witness.tokens)))
        await world.pause(0, "action", calls)
        world.jump(7)
        await world.hold_effect(1)
        await world.go_on()
        await world.until_the_end()
        await world.check_the_end()
        assert [effect.tool for effect in world.witness.effects][:1] == ["pay"]
        await world.close()
        yield world.witness.violations


def test_an_item_confirmed_alone_keeps_no_order(places: Places) -> None:
    """The second item is confirmed alone, then a button confirms the whole plan."""
    rooms = Rooms(places())
    rooms.the_platform("two questions")
    rooms.plan("ana", "pay", 2, [])
    rooms.agree(0, "code", "works", True)
    rooms.press_all(1, "ana", False, True)
    assert [effect.invoice for effect in rooms.witness.effects] == ["INV-1", "INV-0"]
    rooms.teardown()


@pytest.mark.parametrize("moved", [True, False])
def test_a_repeated_call_is_asked_again(places: Places, moved: bool) -> None:
    """The model repeats a call that was confirmed, or was permitted."""
    rooms = Rooms(places())
    rooms.the_platform("two questions")
    rooms.allow_to_stamp(False, (False, moved, False), True, False, True)
    rooms.agree(0, "press", "works", True)
    assert [thing.invoice for thing in rooms.witness.things] == ["INV-0", "INV-1", "INV-1"][: 2 + moved]
    rooms.teardown()


async def a_call_that_outlasts_its_time(files: Path, places: Places, *, times: int) -> list[str]:
    """The first call goes on in its thread. The same action is confirmed `times` times meanwhile."""
    world = World(files, places())
    await world.open()
    world.behaviour = "outlasts"
    for _ in range(times):
        await world.asks("ana", "ana", "file", ["INV-0"])
        await world.work_off()
        await world.types_code("ana", "ana", world.witness.things[-1], "ok")
        await world.work_off()
    await world.let_go()
    await world.until_the_end()
    await world.check_the_end()
    await world.close()
    return world.witness.violations


async def test_a_late_end_is_told_and_its_lock_held(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [await a_call_that_outlasts_its_time(tmp_path, places, times=times) for times in (1, 2)] == [[], []]
    with monkeypatch.context() as patch:
        defects.late_end_dropped(patch)
        assert await a_call_that_outlasts_its_time(tmp_path, places, times=1)
    defects.lock_freed_early(monkeypatch)
    assert await a_call_that_outlasts_its_time(tmp_path, places, times=2)


async def test_a_worker_that_lost_its_lease_launches_no_effect(tmp_path: Path, places: Places) -> None:
    assert [each async for each in two_workers_and_one_effect(tmp_path, places) if each] == []


async def test_action_happens_twice_with_the_fence_off(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with a lost lease goes on writing, and the record takes any fence."""
    real = transitions.launch

    def hold(db: sqlite3.Connection, held: Lease) -> int:
        found: tuple[int | None] | None = db.execute(
            "SELECT upto FROM lane WHERE kind = ? AND lane = ?", (held.kind, held.lane)
        ).fetchone()
        if found is None:
            raise Fenced
        return found[0] or 0

    monkeypatch.setattr(leases, "hold", hold)
    for name in ("COMMIT", "RENEW"):
        script = copy.copy(getattr(scripts, name))
        text = script.text.replace("state.worker and state.fence == tonumber(fence)", "state.worker")
        assert text != script.text
        object.__setattr__(script, "text", text)
        object.__setattr__(script, "sha", hashlib.sha1(text.encode()).hexdigest())
        monkeypatch.setattr(scripts, name, script)
    monkeypatch.setattr(transitions, "launch", lambda action, fence, at: real(replace(action, fence=-1), fence, at))
    async for violations in two_workers_and_one_effect(tmp_path, places):
        if any("happened 2 times" in violation for violation in violations):
            return
    pytest.fail("nothing happened twice")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_histories_for_minutes(places: Places, kept_on: str) -> None:
    """Go on with the next seeds for eight minutes. A file of each store keeps the number of played seeds."""
    played = Path(f".nightly/histories-{kept_on}.txt")
    played.parent.mkdir(exist_ok=True)
    ends = time.monotonic() + 60 * _MINUTES
    while time.monotonic() < ends:
        seeds = int(played.read_text()) if played.exists() else 0
        play(places, 1000 + seeds)
        played.write_text(f"{seeds + 1}")
