"""Two releases of a bot run side by side: an action waits a minute for the release of the question, then ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.machine.places import Places
from tests.machine.processes import Worker
from tests.machine.world import World

WAITS_SECONDS = 60.0


@pytest.fixture
async def world(tmp_path: Path, places: Places) -> AsyncIterator[World]:
    """The first process is of the old release, after asking; the second is of the new release."""
    world = World(tmp_path, places())
    await world.open()
    old = world.workers[0]
    await world.asks("ana", "ana", "pay", ["INV-1"])
    await world.work_off()
    world.deploy()
    world.workers = [old, Worker(world, "new")]
    yield world
    await world.close()


async def confirmed(world: World) -> None:
    await world.presses("ana", "ana", next(iter(world.witness.tokens)))


def ran(world: World) -> list[tuple[str, int]]:
    return [(effect.invoice, effect.release) for effect in world.witness.effects]


@pytest.mark.parametrize("kept_on", ["redis"], indirect=True)
async def test_action_is_run_by_the_release_that_asked(world: World) -> None:
    """Finding 26: in a rolling deployment every confirmed action drifted, in either process hearing the yes."""
    await confirmed(world)
    await world.step(1, "action")
    assert ran(world) == []
    world.jump(WAITS_SECONDS / 2)
    await world.step(0, "action")
    await world.work_off()
    assert ran(world) == [("INV-1", 1)]
    assert world.witness.shown[-1].text == "pay INV-1 is settled."
    assert world.witness.violations == []


@pytest.mark.parametrize("kept_on", ["redis"], indirect=True)
async def test_action_of_a_missing_release_ends_after_a_minute(world: World) -> None:
    await confirmed(world)
    world.workers[0] = world.workers[1]
    await world.work_off()
    assert [shown.text for shown in world.witness.shown[1:]] == ["One moment, please."]
    world.jump(WAITS_SECONDS + 1)
    await world.work_off()
    assert ran(world) == []
    assert world.witness.shown[-1].text.startswith("The bot has been changed since this was asked")


@pytest.mark.parametrize("kept_on", ["sqlite"], indirect=True)
async def test_action_of_an_older_release_ends_at_once_in_one_process(world: World) -> None:
    world.workers[0] = world.workers[1]
    await confirmed(world)
    await world.work_off()
    assert ran(world) == []
    assert world.witness.shown[-1].text.startswith("The bot has been changed since this was asked")
