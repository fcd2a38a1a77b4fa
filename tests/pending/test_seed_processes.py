"""selectools' pending stores over real processes: many pop one action, another dies during the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.pending.seal import Keyring
from gateway.pending.seed.base import PendingStore
from gateway.pending.seed.running import sweep_executors
from tests.children import children
from tests.pending import seed_worker
from tests.pending.conftest import SECRET, Place, Ran, not_in_memory, stashed, status

on_redis = pytest.mark.parametrize("kept", ["redis"], indirect=True)


class Process:
    """A child process and the received messages."""

    def __init__(self, place: Place, what: str, effects: Path) -> None:
        self.pipe, theirs = children.Pipe()
        where = place.url if place.kind == "redis" else str(place.path)
        self._process = children.Process(
            target=seed_worker.run, args=(theirs, where, place.prefix, what, SECRET, str(effects)), daemon=True
        )
        self._process.start()
        theirs.close()

    async def hear(self) -> tuple[str, Any]:
        said: tuple[str, Any] = await asyncio.to_thread(self.pipe.recv)
        return said

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await asyncio.to_thread(self._process.join)
        self.pipe.close()


class Processes:
    def __init__(self, effects: Path) -> None:
        self.effects = effects
        self._all: list[Process] = []

    async def start(self, place: Place, what: str) -> Process:
        process = await asyncio.to_thread(Process, place, what, self.effects)
        self._all.append(process)
        return process

    def done(self) -> list[str]:
        """Return the acts of executors, in any process."""
        return sorted(self.effects.read_text().split()) if self.effects.exists() else []

    def end(self) -> None:
        for process in self._all:
            process._process.kill()
            process._process.join()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path / "effects")
    yield processes
    processes.end()


@pytest.mark.ledger("PEND-19", "PEND-30", "PEND-33")
@on_redis
async def test_eight_processes_pop_one_action_and_one_executes(
    place: Place, pending: PendingStore, processes: Processes
) -> None:
    """Each of the four actions, popped by all eight at once."""
    for number, user in enumerate(seed_worker.USERS):
        await stashed(pending, user=user, args={"invoice_id": f"INV-{number}"})
    started = await asyncio.gather(*(processes.start(place, "pop") for _ in range(8)))
    assert {(await each.hear())[0] for each in started} == {"open"}
    for each in started:
        each.pipe.send("go")
    popped = [(await each.hear())[1] for each in started]
    for outcomes in zip(*popped, strict=True):
        assert sorted(map(str, outcomes)) == ["None"] * 7 + ["executed"]
    assert processes.done() == sorted(f"INV-{number}" for number in range(len(seed_worker.USERS)))
    assert await pending.get(seed_worker.USERS[0]) is None


async def running_elsewhere(place: Place, processes: Processes) -> tuple[PendingStore, Process]:
    """Stash an action for an endless run in another process; a file is left to that process."""
    pending = await place.open()
    await stashed(pending, user=seed_worker.USERS[0])
    if place.kind == "file":
        await place.close()
    dying = await processes.start(place, "hang")
    assert (await dying.hear())[0] == "open"
    dying.pipe.send("go")
    assert await dying.hear() == ("running", "INV-42")
    return pending, dying


@not_in_memory
async def test_a_process_that_dies_while_it_runs_leaves_unknown(place: Place, processes: Processes, ran: Ran) -> None:
    pending, dying = await running_elsewhere(place, processes)
    if place.kind == "redis":
        assert await pending.get(seed_worker.USERS[0]) is None
        assert await pending.pop_if_confirmed(seed_worker.USERS[0], "yes") is None, "it runs over there"
    await dying.kill()
    if place.kind == "file":
        pending = await place.open()
    pending.register_executor_factory("delete_invoice", ran.factory)
    await place.later(7)
    outcome = await pending.pop_if_confirmed(seed_worker.USERS[0], "yes")
    assert outcome is not None
    assert (outcome.status, outcome.record.state) == ("unknown", "unknown")
    assert outcome.record.outcome == "the process that ran it died"
    assert (processes.done(), ran.done) == (["INV-42"], [])
    await stashed(pending, user=seed_worker.USERS[0])


@not_in_memory
async def test_a_get_finds_the_dead_one_too(place: Place, processes: Processes) -> None:
    pending, dying = await running_elsewhere(place, processes)
    await dying.kill()
    if place.kind == "file":
        pending = await place.open()
    await place.later(7)
    assert await pending.get(seed_worker.USERS[0]) is None
    (stored,) = (await place.stored(pending, "action/")).values()
    assert '"state":"unknown"' in stored["body"]
    assert status(await pending.pop_if_intent(seed_worker.USERS[0], "confirm")) == "unknown"


@not_in_memory
async def test_sweep_settles_the_action_of_a_dead_process(place: Place, processes: Processes) -> None:
    pending, dying = await running_elsewhere(place, processes)
    if place.kind == "redis":
        store = await pending.open()
        assert await sweep_executors(store, Keyring([SECRET.encode()])) == [], "it runs over there"
    await dying.kill()
    if place.kind == "file":
        pending = await place.open()
    await place.later(7)
    store = await pending.open()
    (ended,) = await sweep_executors(store, Keyring([SECRET.encode()]))
    assert (ended.state, ended.kind) == ("unknown", "delete_invoice")
    assert await sweep_executors(store, Keyring([SECRET.encode()])) == []
    assert await place.stored(pending, "alive/") == {}


@pytest.mark.parametrize("kept", ["file"], indirect=True)
async def test_a_second_process_on_a_file_is_refused_in_clear_words(place: Place, processes: Processes) -> None:
    await stashed(await place.open())
    second = await processes.start(place, "open")
    said, why = await second.hear()
    assert said == "refused"
    assert str(place.path) in why and "process" in why
