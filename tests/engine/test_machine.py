"""Random histories of people, platforms and processes, and what must hold in every one of them.

No effect without one valid decision; none twice that must not be; the arguments that were shown; and whatever was shown
comes to an end that is told.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from channels import ButtonPress
from gateway.engine.actions import Actions
from gateway.engine.decisions import Decisions, _Outcome
from gateway.pending import deciding, settling, transitions
from gateway.pending.seal import Keyring
from gateway.pending.tokens import token_partition, token_sha256
from gateway.store.base import Fenced, Incoming, Key, Lease
from gateway.store.redis import RedisStore, scripts
from gateway.store.sqlite import SqliteStore, lanes
from gateway.tools.action import PendingAction
from tests.engine.machine import Behaviour, Mood, OnRedis, OnSqlite, Places, World

PEOPLE = st.sampled_from(["ana", "ana", "ana", "bob"])
PLACES = st.sampled_from(["ana", "ana", "ana", "#team", "bob"])
VERBS = st.sampled_from(["pay", "pay", "archive"])
NUMBERS = st.integers(0, 10**6)
WAYS = st.sampled_from(["press", "press", "press", "code", "reply", "word"])
BEHAVIOURS = st.sampled_from(["works", "works", *get_args(Behaviour)])
CALLS = st.integers(1, 14)
WHO = st.integers(0, 1)
KINDS: Any = st.sampled_from(["turn", "action", "out"])
SECONDS = st.sampled_from([1.0, 7.0, 30.0, 61.0, 400.0, 905.0])


pytestmark = pytest.mark.usefixtures("nobody_waits_long")


class Violated(AssertionError):
    """The witness saw something that must never be."""


class Machine(RuleBasedStateMachine):
    """Every rule is one thing that happens; half the time the work it makes is worked off at once."""

    def __init__(self, place: OnSqlite | OnRedis) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.files = tempfile.TemporaryDirectory(prefix="askfirst-")
        self.world = World(Path(self.files.name), place)
        self.run(self.world.open())
        self.asked = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        self.loop.run_until_complete(work)

    def then(self, work: Coroutine[Any, Any, Any], off: bool) -> None:
        """Have it happen, and perhaps the work it makes."""
        self.run(work)
        if off:
            self.run(self.world.work_off())

    def teardown(self) -> None:
        try:
            self.run(self.world.until_the_end())
            self.run(self.world.check_the_end())
            self.nothing_is_wrong()
        finally:
            self.run(self.world.close())
            self.loop.close()
            self.files.cleanup()

    @invariant()
    def nothing_is_wrong(self) -> None:
        if self.world.violations:
            raise Violated("; ".join(self.world.violations))

    # ── people ──

    @rule(person=PEOPLE, place=PLACES, verb=VERBS, several=st.booleans())
    def ask(self, person: str, place: str, verb: str, several: bool) -> None:
        count = 2 if several else 1
        invoices = [f"INV-{self.asked + number}" for number in range(count)]
        self.asked += count
        self.then(self.world.asks(person, place, verb, invoices), True)

    @rule(place=PLACES, verb=VERBS, way=WAYS, behaviour=BEHAVIOURS, off=st.booleans())
    def ask_and_agree(self, place: str, verb: str, way: str, behaviour: Any, off: bool) -> None:
        self.ask("ana", place, verb, several=False)
        if self.world.things:
            self.agree(0, way, behaviour, off)

    @precondition(lambda self: self.world.things)
    @rule(number=NUMBERS)
    def ask_again(self, number: int) -> None:
        thing = self._thing(number)
        self.then(self.world.asks(thing.requester, thing.place, thing.tool, [thing.invoice]), True)

    @precondition(lambda self: self.world.things)
    @rule(number=NUMBERS, way=WAYS, behaviour=BEHAVIOURS, off=st.booleans())
    def agree(self, number: int, way: str, behaviour: Any, off: bool) -> None:
        """Who asked says yes, in one of the ways there are."""
        self.world.behaviour = behaviour
        thing = self._thing(number)
        self.then(self._answer(way, thing.requester, thing.place, thing, "confirm"), off)

    @precondition(lambda self: self.world.things)
    @rule(number=NUMBERS, way=WAYS, off=st.booleans())
    def refuse(self, number: int, way: str, off: bool) -> None:
        thing = self._thing(number)
        self.then(self._answer(way, thing.requester, thing.place, thing, "cancel"), off)

    @precondition(lambda self: self.world.things)
    @rule(number=NUMBERS, way=WAYS, elsewhere=st.booleans(), off=st.booleans())
    def meddle(self, number: int, way: str, elsewhere: bool, off: bool) -> None:
        """Somebody else says yes, or the right person in another chat."""
        thing = self._thing(number)
        other = "bob" if thing.requester == "ana" else "ana"
        there = "#team" if thing.place != "#team" else thing.requester
        person, place = (thing.requester, there) if elsewhere else (other, thing.place)
        self.then(self._answer(way, person, place, thing, "confirm"), off)

    @precondition(lambda self: self.world.yes_events)
    @rule(verb=VERBS, off=st.booleans())
    def an_old_yes_comes_again(self, verb: str, off: bool) -> None:
        """Right after a new question the platform delivers the answer to an old one once more."""
        self.ask("ana", "ana", verb, several=False)
        self.then(self.world.again(self.world.yes_events[-1]), off)

    @rule(person=PEOPLE, flag=st.sampled_from(["", "", "forwarded", "via_bot", "transcribed"]), off=st.booleans())
    def bare_yes(self, person: str, flag: str, off: bool) -> None:
        self.then(self.world.answers(person, person, "yes", **({flag: True} if flag else {})), off)

    @rule(person=PEOPLE, place=PLACES, what=st.sampled_from(["hello", "hello", "stop", "edit"]), off=st.booleans())
    def talk(self, person: str, place: str, what: str, off: bool) -> None:
        match what:
            case "stop":
                self.then(self.world.says(person, place, "", command="stop"), off)
            case "edit":
                self.then(self.world.edits(person, place, "yes"), off)
            case _:
                self.then(self.world.says(person, place, "hello"), off)

    @precondition(lambda self: self.world.events)
    @rule(number=NUMBERS, off=st.booleans())
    def delivered_again(self, number: int, off: bool) -> None:
        last = len(self.world.events)
        self.then(self.world.again(last - 1 - number % min(last, 6)), off)

    # ── time, processes, platform, tools, the file ──

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.world.jump(seconds)
        self.run(self.world.workers[0].keep_time())

    @rule(worker=WHO, calls=CALLS, lost=st.booleans())
    def will_die(self, worker: int, calls: int, lost: bool) -> None:
        wire = self.world.workers[worker].wire
        wire.left, wire.answer_lost = calls, lost

    @rule(who=st.integers(0, 2), kind=KINDS)
    def work(self, who: int, kind: Any) -> None:
        self.run(self.world.together(kind) if who == 2 else self.world.step(who, kind))

    @precondition(lambda self: len(self.world.running) < 2)
    @rule(worker=WHO, kind=KINDS, calls=CALLS, in_effect=st.booleans(), then=SECONDS)
    def stand_still(self, worker: int, kind: Any, calls: int, in_effect: bool, then: float) -> None:
        self.run(self.world.hold_effect(worker) if in_effect else self.world.pause(worker, kind, calls))
        self.world.jump(max(then, 7.0))

    @precondition(lambda self: self.world.running)
    @rule()
    def go_on(self) -> None:
        self.run(self.world.go_on())

    @rule(mood=st.sampled_from(["up", *get_args(Mood)]))
    def platform(self, mood: Any) -> None:
        self.world.platform.mood = mood

    @precondition(lambda self: self.world.things)
    @rule(number=NUMBERS)
    def tamper(self, number: int) -> None:
        self.run(self.world.tampers(self._thing(number)))

    # ── which ──

    def _thing(self, number: int) -> Any:
        """One of the newest three."""
        return self.world.things[-1 - number % min(len(self.world.things), 3)]

    def _answer(self, way: str, person: str, place: str, thing: Any, intent: str) -> Coroutine[Any, Any, Any]:
        world, yes = self.world, intent == "confirm"
        match way:
            case "press":
                mine = [token for token, found in world.tokens.items() if found == (thing, intent)]
                return world.presses(person, place, mine[self.asked % len(mine)])
            case "code":
                return world.types_code(person, place, thing, "ok" if yes else "no")
            case "reply":
                prompts = [number for number, shown in enumerate(world.shown) if thing in shown.things]
                return world.replies(person, prompts[self.asked % len(prompts)], "yes" if yes else "no")
            case _:
                return world.answers(person, place, "yes" if yes else "no")


def histories(count: int, steps: int, **more: Any) -> settings:
    return settings(
        max_examples=count,
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def play(places: Places, many: settings) -> None:
    run_state_machine_as_test(lambda: Machine(places()), settings=many)  # type: ignore[arg-type]  # it is only called


@pytest.mark.ledger("PEND-19", "PEND-20")
@pytest.mark.timeout(300)
def test_histories_of_40_steps(places: Places, kept_on: str) -> None:
    count = {"sqlite": 100, "redis": 25}[kept_on]
    play(places, histories(count, 40))


# ── defects, planted one at a time: the machine must see each of them ──


def seal_off(patch: pytest.MonkeyPatch) -> None:
    """A record that somebody has changed passes for genuine."""
    patch.setattr(Keyring, "_holds", lambda self, purpose, mac, context, text: True)


def window_ignored(patch: pytest.MonkeyPatch) -> None:
    """A yes counts however late it comes."""
    patch.setattr(transitions, "expired", lambda action, at: False)
    patch.setattr(settling, "expire", lambda actions, action_id, at: None)
    patch.setattr(deciding, "expire", lambda actions, action_id, at: None)


def launch_twice(patch: pytest.MonkeyPatch) -> None:
    """What a dead worker had launched is launched again, whatever the tool."""

    async def no_end(self: Actions, action: PendingAction) -> None:
        return None

    patch.setattr(Actions, "_after_a_death", no_end)


def twin_accepted(patch: pytest.MonkeyPatch) -> None:
    """What the platform delivers again is a new event."""
    numbers = itertools.count()
    for kind in (SqliteStore, RedisStore):
        real: Any = kind.accept

        async def accept(self: Any, events: Sequence[Incoming], real: Any = real) -> Any:
            return await real(self, [replace(event, event_ids=(f"new {next(numbers)}",)) for event in events])

        patch.setattr(kind, "accept", accept)


def token_of_another_chat(patch: pytest.MonkeyPatch) -> None:
    """A button counts wherever it is pressed."""

    async def pressed(self: Decisions, conversation: str, press: ButtonPress, at: datetime) -> _Outcome:
        key = Key(str(token_partition(press.token)), f"token/{token_sha256(press.token)}")
        found: Any = (await self._shared.store.get([key]))[key].value
        actions = await self._shared.actions(found["conversation"], found["action_id"])
        feedback = deciding.press(actions, found["action_id"], press.token, press.person, at, "en")
        return _Outcome(actions, True, feedback)

    patch.setattr(Decisions, "_pressed", pressed)


def event_of_another_person(patch: pytest.MonkeyPatch) -> None:
    """Anybody may say yes."""
    patch.setattr(transitions, "may_approve", lambda action, person: True)
    patch.setattr(transitions, "may_refuse", lambda action, person: True)


DEFECTS = [seal_off, window_ignored, launch_twice, twin_accepted, token_of_another_chat, event_of_another_person]
LONG = [seal_off, launch_twice, twin_accepted, event_of_another_person]
"""On Redis. There `token_of_another_chat` does no harm: these chats are of three partitions, and a commit is of one."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kept_on", "plant"),
    [
        *(pytest.param("sqlite", plant) for plant in DEFECTS),
        pytest.param("redis", window_ignored),
        *(pytest.param("redis", plant, marks=pytest.mark.chaos) for plant in LONG),
    ],
    indirect=["kept_on"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_machine_sees(
    plant: Callable[[pytest.MonkeyPatch], None], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violated):
        play(places, histories(400, 40, phases=[Phase.generate]))


async def two_workers_and_one_effect(files: Path, places: Places) -> list[str]:
    """One stands still before its launch, wherever that may be; another takes over; then the first goes on."""
    violations = []
    for calls in range(1, 12):
        world = World(files, places())
        await world.open()
        await world.asks("ana", "ana", "pay", ["INV-0"])
        await world.work_off()
        await world.presses("ana", "ana", next(iter(world.tokens)))
        await world.pause(0, "action", calls)
        world.jump(7)
        await world.hold_effect(1)
        await world.go_on()
        await world.until_the_end()
        await world.check_the_end()
        violations += world.violations
        assert [name for name, _, _ in world.effects][:1] == ["pay"]
        await world.close()
    return violations


async def test_who_lost_its_lease_launches_nothing(tmp_path: Path, places: Places) -> None:
    assert await two_workers_and_one_effect(tmp_path, places) == []


async def test_with_the_fence_off_it_happens_twice(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has lost a lease goes on writing, and the record takes any fence."""
    real = transitions.launch

    def hold(db: sqlite3.Connection, held: Lease) -> None:
        if not db.execute("SELECT 1 FROM lane WHERE kind = ? AND lane = ?", (held.kind, held.lane)).fetchall():
            raise Fenced

    monkeypatch.setattr(lanes, "hold", hold)
    for name in ("COMMIT", "RENEW"):
        script = copy.copy(getattr(scripts, name))
        text = script.text.replace("state.worker and state.fence == tonumber(fence)", "state.worker")
        assert text != script.text
        object.__setattr__(script, "text", text)
        object.__setattr__(script, "sha", hashlib.sha1(text.encode()).hexdigest())
        monkeypatch.setattr(scripts, name, script)
    monkeypatch.setattr(transitions, "launch", lambda action, fence, at: real(replace(action, fence=-1), fence, at))
    assert any("happened 2 times" in violation for violation in await two_workers_and_one_effect(tmp_path, places))


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_histories_of_100_steps(places: Places, kept_on: str) -> None:
    count = {"sqlite": 400, "redis": 50}[kept_on]
    play(places, histories(count, 100))
