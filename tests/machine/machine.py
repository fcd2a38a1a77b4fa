"""The possible steps of a history, one a rule. Half the time the resulting work is done at once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.machine.places import OnRedis, OnSqlite
from tests.machine.processes import PLATFORMS, Mood
from tests.machine.tampering import Change, Tamperer
from tests.machine.things import ASKED_ONCE, Thing
from tests.machine.world import Behaviour, World

__all__ = ["NUMBERS", "Ground", "Machine", "Violated"]

PEOPLE = st.sampled_from(["ana", "ana", "ana", "bob"])
PLACES = st.sampled_from(["ana", "ana", "ana", "#team", "bob"])
VERBS = st.sampled_from(["pay", "pay", "archive", "move"])
ASKS = st.sampled_from(["pay", "pay", "archive", "move", "send", "file"])
NUMBERS = st.integers(0, 10**6)
WAYS = st.sampled_from(["press", "press", "press", "code", "reply", "word"])
BEHAVIOURS = st.sampled_from(["works", "works", *get_args(Behaviour)])
CALLS = st.integers(1, 14)
WHO = st.integers(0, 1)
KINDS: Any = st.sampled_from(["turn", "action", "out"])
SECONDS = st.sampled_from([1.0, 7.0, 30.0, 61.0, 400.0, 905.0])
CHANGES: Any = st.sampled_from(get_args(Change))


_HANGS_SECONDS = 120.0


def _places_of(waiting: Any) -> Iterator[str]:
    """Yield the functions and lines in which a coroutine waits, the outermost first."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None)
        yield f"{waiting.__qualname__}:{frame.f_lineno}" if frame is not None else repr(waiting)[:200]
        waiting = getattr(waiting, "cr_await", None)


class Violated(AssertionError):
    """The witness saw a violation."""


class Ground(RuleBasedStateMachine):
    """A history of one world: time passes, processes and the platform fail."""

    def __init__(self, place: OnSqlite | OnRedis) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.files = tempfile.TemporaryDirectory(prefix="askfirst-")
        self.world = World(Path(self.files.name), place)
        self.witness = self.world.witness
        self.tamperer = Tamperer(self.world)
        self.run(self.world.open())
        self.asked = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        self.loop.run_until_complete(self._in_time(work))

    async def _in_time(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a piece of work. A piece that hangs violates, with the place where each task waits."""
        done, waiting = await asyncio.wait([asyncio.ensure_future(work)], timeout=_HANGS_SECONDS)
        if waiting:
            waits = [f"{task.get_name()}: {' < '.join(_places_of(task.get_coro()))}" for task in asyncio.all_tasks()]
            raise Violated("\n".join(["a step hangs", *waits, *self.witness.log]))
        done.pop().result()

    def then(self, work: Coroutine[Any, Any, Any], off: bool) -> None:
        """Run a step, and with `off` the resulting work."""
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
        if self.witness.violations:
            raise Violated("\n".join(["; ".join(self.witness.violations), *self.witness.log]))

    @initialize(name=st.sampled_from([*PLATFORMS]))
    def the_platform(self, name: str) -> None:
        self.world.platform.capabilities = PLATFORMS[name]
        self.witness.edits = PLATFORMS[name].edit

    # ── time, processes, platform, tools, the file ──

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.world.jump(seconds)
        self.run(self.world.workers[0].keep_time())

    @rule(worker=WHO, calls=CALLS, lost=st.booleans())
    def will_die(self, worker: int, calls: int, lost: bool) -> None:
        wire = self.world.workers[worker].wire
        wire.calls_left, wire.last_answer_lost = calls, lost

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
        self.world.platform.moods = [mood]

    @precondition(lambda self: not self.world.running)
    @rule()
    def the_world_changes(self) -> None:
        """Change the state seen by a preview."""
        self.world.folder += 1

    @rule()
    def deploy(self) -> None:
        self.world.deploy()

    @precondition(lambda self: self.witness.again)
    @rule(number=NUMBERS)
    def press_again(self, number: int) -> None:
        """The requester presses the button that asks an ended question again."""
        tokens = [*self.witness.again][::-1]
        if tokens:
            token = tokens[number % min(len(tokens), 3)]
            by = self.witness.asked_by[self.witness.again[token][1]]
            self.then(self.world.presses(by, self.witness.token_place[token], token), True)

    # ── which ──

    def _thing(self, number: int) -> Thing:
        """Return one of the newest three."""
        return self.witness.things[-1 - number % min(len(self.witness.things), 3)]

    def _answer(self, way: str, person: str, place: str, thing: Thing, intent: str) -> Coroutine[Any, Any, Any]:
        world, yes = self.world, intent == "confirm"
        match way:
            case "press":
                mine = self._buttons(thing, intent)
                mine = [token for token in mine if world.witness.token_place[token] == place] or mine
                if not mine:  # a requester cannot confirm an action of other approvers
                    return world.answers(person, place, "yes" if yes else "no")
                return world.presses(person, place, mine[self.asked % len(mine)])
            case "code":
                return world.types_code(person, place, thing, "ok" if yes else "no")
            case "reply":
                prompts = [number for number, shown in enumerate(world.witness.shown) if thing in shown.things]
                here = [number for number in prompts if world.witness.shown[number].place == place]
                prompts = here or prompts
                return world.replies(person, prompts[self.asked % len(prompts)], "yes" if yes else "no")
            case _:
                return world.answers(person, place, "yes" if yes else "no")

    def _buttons(self, thing: Thing, intent: str) -> list[str]:
        return [token for token, found in self.witness.tokens.items() if found == (thing, intent)]

    def _has_button(self, thing: Thing, intent: str) -> bool:
        return bool(self._buttons(thing, intent))

    def _invoice(self) -> str:
        self.asked += 1
        return f"INV-{self.asked - 1}"

    def _asked_alone(self, person: str, place: str, verb: str, *more: str) -> Thing | None:
        """Have a person ask. Returns the action; None without a new question."""
        before = len(self.witness.things)
        self.then(self.world.says(person, place, " ".join([verb, self._invoice(), *more]), ask=True), True)
        return self.witness.things[-1] if len(self.witness.things) == before + 1 else None

    def _vote(self, thing: Thing, by: str, way: str, intent: str, off: bool) -> None:
        """Have a person answer in their own chat if asked there, else in the chat of the request."""
        place = by if by in thing.codes and by != thing.place else thing.place
        self.then(self._answer(way, by, place, thing, intent), off)


class Machine(Ground):
    """A history of one world: one person is asked at a time, and an intruder writes to the store."""

    # ── people ──

    @rule(person=PEOPLE, place=PLACES, verb=ASKS, several=st.booleans())
    def ask(self, person: str, place: str, verb: str, several: bool) -> None:
        count = 2 if several else 1
        invoices = [f"INV-{self.asked + number}" for number in range(count)]
        self.asked += count
        self.then(self.world.asks(person, place, verb, invoices), True)

    @rule(place=PLACES, verb=VERBS, way=WAYS, behaviour=BEHAVIOURS, off=st.booleans())
    def ask_and_agree(self, place: str, verb: str, way: str, behaviour: Any, off: bool) -> None:
        self.ask("ana", place, verb, several=False)
        if self.witness.things:
            self.agree(0, way, behaviour, off)

    @precondition(lambda self: self.witness.things)
    @rule(number=NUMBERS)
    def ask_again(self, number: int) -> None:
        thing = self._thing(number)
        if thing.tool not in ASKED_ONCE:
            self.then(self.world.asks(thing.requester, thing.place, thing.tool, [thing.invoice]), True)

    @precondition(lambda self: self.witness.things)
    @rule(number=NUMBERS, way=WAYS, behaviour=BEHAVIOURS, off=st.booleans())
    def agree(self, number: int, way: str, behaviour: Any, off: bool) -> None:
        """The requester says yes, in one of the possible ways."""
        self.world.behaviour = behaviour
        thing = self._thing(number)
        self.then(self._answer(way, thing.requester, thing.place, thing, "confirm"), off)

    @precondition(lambda self: self.witness.things)
    @rule(number=NUMBERS, way=WAYS, off=st.booleans())
    def refuse(self, number: int, way: str, off: bool) -> None:
        thing = self._thing(number)
        self.then(self._answer(way, thing.requester, thing.place, thing, "cancel"), off)

    @precondition(lambda self: self.witness.things)
    @rule(number=NUMBERS, way=WAYS, elsewhere=st.booleans(), off=st.booleans())
    def meddle(self, number: int, way: str, elsewhere: bool, off: bool) -> None:
        """Another person says yes, or the right person in another chat."""
        thing = self._thing(number)
        other = next(each for each in ("dora", "bob", "ana", "dora")[number % 2 :] if each not in thing.deciders)
        there = "#team" if thing.place != "#team" else thing.requester
        person, place = (thing.requester, there) if elsewhere else (other, thing.place)
        self.then(self._answer(way, person, place, thing, "confirm"), off)

    @rule(
        intent=st.sampled_from(["confirm", "confirm", "cancel"]),
        there=st.sampled_from(["#team", "bob"]),
        off=st.booleans(),
    )
    def a_button_is_pressed_elsewhere(self, intent: str, there: str, off: bool) -> None:
        """The right person presses in a chat without the question."""
        thing = self._asked_anew("ana", "pay")
        if thing is not None:
            self.then(self._answer("press", "ana", there, thing, intent), off)

    @precondition(lambda self: self.world.yes_events)
    @rule(verb=VERBS, off=st.booleans())
    def an_old_yes_comes_again(self, verb: str, off: bool) -> None:
        """Right after a new question, the platform redelivers the answer to an old question."""
        self.ask("ana", "ana", verb, several=False)
        self.then(self.world.again(self.world.yes_events[-1]), off)

    @rule(person=PEOPLE, flag=st.sampled_from(["", "", "forwarded", "via_bot", "transcribed"]), off=st.booleans())
    def bare_yes(self, person: str, flag: str, off: bool) -> None:
        self.then(self.world.answers(person, person, "yes", **({flag: True} if flag else {})), off)

    @precondition(lambda self: self.witness.things)
    @rule(number=NUMBERS, way=WAYS, by=st.sampled_from(["bob", "cleo"]), off=st.booleans())
    def approve(self, number: int, way: str, by: str, off: bool) -> None:
        """An approver says yes, with or without the right to approve this action."""
        thing = self._thing(number)
        self.then(self._answer(way, by, thing.place, thing, "confirm"), off)

    @precondition(lambda self: len(self.world.outlasting) < 2)
    @rule(place=st.sampled_from(["ana", "#team"]), way=st.sampled_from(["press", "code"]), twice=st.booleans())
    def a_call_outlasts_its_time(self, place: str, way: str, twice: bool) -> None:
        """A call outlasts its timeout in a thread; with `twice` an equal action is confirmed meanwhile."""
        thing = self._asked_anew(place, "file")
        if thing is not None:
            self.world.behaviour = "outlasts"
            self.then(self._answer(way, "ana", place, thing, "confirm"), True)
            self.world.behaviour = "works"
            if twice:
                self.then(self.world.asks("ana", place, "file", [thing.invoice]), True)
                self.then(self._answer(way, "ana", place, self.witness.things[-1], "confirm"), True)

    @precondition(lambda self: self.world.outlasting)
    @rule()
    def let_go(self) -> None:
        self.run(self.world.let_go())

    @rule(way=st.permutations(["press", "code"]), off=st.booleans())
    def ask_and_approve(self, way: list[str], off: bool) -> None:
        thing = self._asked_anew("#team", "send")
        if thing is not None:
            for by, each in zip(("bob", "cleo"), way, strict=True):
                self.then(self._answer(each, by, "#team", thing, "confirm"), off)

    @rule(verb=VERBS, before=st.integers(1, 2), off=st.booleans())
    def a_yes_comes_late(self, verb: str, before: int, off: bool) -> None:
        """A yes written before the question is delivered for the first time."""
        self.ask("ana", "ana", verb, several=False)
        self.then(self.world.says("ana", "ana", "yes", before=before), off)

    @rule(place=PLACES, command=st.sampled_from(["cancel", "no", "new", "undo"]), code=st.booleans(), off=st.booleans())
    def a_command_answers(self, place: str, command: str, code: bool, off: bool) -> None:
        """A command followed by an answer, as a reply to the question or with a code."""
        thing = self._asked_anew(place, "pay")
        if thing is not None:
            text = f"ok {thing.code}" if code else "yes"
            prompts = [str(number) for number, shown in enumerate(self.witness.shown) if thing in shown.things]
            reply_to = None if code else prompts[-1]
            self.then(self.world.says("ana", place, text, command=command, reply_to=reply_to), off)

    @precondition(lambda self: self.world.events)
    @rule(number=NUMBERS, decides=st.booleans(), off=st.booleans())
    def replay(self, number: int, decides: bool, off: bool) -> None:
        last = len(self.world.events)
        self.then(self.world.replay(last - 1 - number % min(last, 4), decides=decides), off)

    @rule(place=PLACES, off=st.booleans())
    def notice(self, place: str, off: bool) -> None:
        self.then(self.world.notifies(place, "Good morning. Shall I do something else?"), off)

    @rule(person=PEOPLE, what=st.sampled_from(["hello", "maybe", "yes please"]), times=st.integers(3, 5))
    def insist(self, person: str, what: str, times: int) -> None:
        """A person repeats words that are no answer."""
        for _ in range(times):
            self.then(self.world.says(person, person, what, transcribed=True), True)

    @rule(
        person=PEOPLE, place=PLACES, what=st.sampled_from(["hello", "hello", "stop", "new", "edit"]), off=st.booleans()
    )
    def talk(self, person: str, place: str, what: str, off: bool) -> None:
        match what:
            case "stop" | "new":
                self.then(self.world.says(person, place, "", command=what), off)
            case "edit":
                self.then(self.world.edits(person, place, "yes"), off)
            case _:
                self.then(self.world.says(person, place, "hello"), off)

    @precondition(lambda self: self.world.events)
    @rule(number=NUMBERS, off=st.booleans())
    def delivered_again(self, number: int, off: bool) -> None:
        last = len(self.world.events)
        self.then(self.world.again(last - 1 - number % min(last, 6)), off)

    @precondition(lambda self: not self.world.running)
    @rule(place=st.sampled_from(["ana", "#team"]), way=st.sampled_from(["press", "code", "reply"]))
    def the_world_changes_before_the_yes(self, place: str, way: str) -> None:
        thing = self._asked_anew(place, "move")
        if thing is not None:
            self.world.folder += 1
            self.then(self._answer(way, "ana", place, thing, "confirm"), True)

    # ── the store ──

    @rule(place=PLACES)
    def copy(self, place: str) -> None:
        self.run(self.tamperer.copies(place))

    @precondition(lambda self: self.witness.things)
    @rule(number=NUMBERS, change=CHANGES, off=st.booleans())
    def tamper(self, number: int, change: Any, off: bool) -> None:
        self.then(self.tamperer.does(change, self._thing(number), number), off)

    @rule(place=st.sampled_from(["ana", "#team"]), way=st.sampled_from(["code", "reply"]))
    def swap_codes_and_agree(self, place: str, way: str) -> None:
        """Swap the codes of two open questions in the index, then answer one of them."""
        one, other = (self._asked_anew(place, "pay") for _ in range(2))
        if one is not None and other is not None:
            self.run(self.tamperer.swaps_codes(place, one.code, other.code))
            self.then(self._answer(way, "ana", place, one, "confirm"), True)

    @rule(place=st.sampled_from(["ana", "#team"]), way=st.sampled_from(["press", "code"]))
    def agree_put_back_and_agree(self, place: str, way: str) -> None:
        """Answer a question, restore the question's old record, and answer again."""
        thing = self._asked_anew(place, "pay")
        if thing is not None:
            self.run(self.tamperer.copies(place))
            self.then(self._answer(way, "ana", place, thing, "confirm"), True)
            self.run(self.tamperer.does("old record", thing, -1))
            self.then(self._answer(way, "ana", place, thing, "confirm"), True)

    def _asked_anew(self, place: str, verb: str) -> Thing | None:
        """Have Ana ask. Returns the action; None without a new question."""
        before = len(self.witness.things)
        self.ask("ana", place, verb, several=False)
        return self.witness.things[-1] if len(self.witness.things) == before + 1 else None
