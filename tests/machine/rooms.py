"""Further steps of a history: approvers in their own chats, plans, changed questions, permissions, withdrawals."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.machine.bot import WORDS
from tests.machine.machine import NUMBERS, Ground, Machine
from tests.machine.places import RelayStep
from tests.machine.processes import Mood
from tests.machine.things import ASKED_ELSEWHERE, SIGNERS, Thing
from tests.machine.world import Behaviour

__all__ = ["Allowing", "Approving", "Changing", "Planning", "Rooms", "TakingBack"]

ELSEWHERE = st.sampled_from(["sign", "sign", "share"])
VOTERS = st.sampled_from(["bob", "cleo", "dan", "eve", "ana"])
VOTES = st.sampled_from(["confirm", "confirm", "confirm", "cancel"])
OWN_PLACES = st.sampled_from(["ana", "ana", "bob", "#team"])
VOTE_WAYS = st.sampled_from(["press", "press", "code", "code", "word"])
PLAN_VERBS = st.sampled_from(["pay", "pay", "move", "archive"])
CHANGED_VERBS = st.sampled_from(["pay", "pay", "move", "sign"])
SHORTER = st.sampled_from([0.0, 0.0, 0.0, 0.0, 61.0, 400.0, 905.0])
FOLDERS = st.sampled_from(["1", "1", "2"])
COPIES = st.sampled_from([1, 1, 2, 3])
BEHAVIOURS = st.sampled_from(["works", "works", "fails", "unknown, done", "unknown, not done"])
PARTS: Any = st.sampled_from([[], [], [], ["up", "lost answer"], ["up", "down"], ["up", "blocked"], ["down"]])
"""The fate of a list's messages."""
UNDER_LISTS = st.sampled_from(["1", "2", "the first", "both", "all", "none"])
RARELY = st.sampled_from([False, False, True])
NUMBERED = st.sampled_from(["1", "2", "1,3", "all"])
LISTED = st.sampled_from(WORDS)


class Approving(Ground):
    """Approvers are asked in their own chats."""

    @rule(person=st.sampled_from(["ana", "ana", "bob"]), place=OWN_PLACES, verb=ELSEWHERE, off=st.booleans())
    def ask_elsewhere(self, person: str, place: str, verb: str, off: bool) -> None:
        self.then(self.world.asks(person, place, verb, [self._invoice()]), off)

    @precondition(lambda self: self._asked_elsewhere())
    @rule(number=NUMBERS, by=VOTERS, way=VOTE_WAYS, intent=VOTES, off=st.booleans())
    def vote(self, number: int, by: str, way: str, intent: str, off: bool) -> None:
        """An approver answers in their own chat, or in the chat of the request."""
        asked = self._asked_elsewhere()
        thing = asked[-1 - number % min(len(asked), 3)]
        self._vote(thing, by, way, intent, off)

    @rule(
        place=OWN_PLACES,
        verb=ELSEWHERE,
        voters=st.permutations(["bob", "cleo", "dan", "eve", "ana"]),
        ways=st.tuples(VOTE_WAYS, VOTE_WAYS, VOTE_WAYS),
        intents=st.tuples(VOTES, VOTES, VOTES),
        late=SHORTER,
        off=st.booleans(),
    )
    def ask_elsewhere_and_vote(
        self,
        place: str,
        verb: str,
        voters: list[str],
        ways: tuple[str, ...],
        intents: tuple[str, ...],
        late: float,
        off: bool,
    ) -> None:
        thing = self._asked_alone("ana", place, verb)
        if thing is not None:
            for number, (by, way, intent) in enumerate(zip(voters, ways, intents, strict=False)):
                if number == 1 and late:
                    self.time_passes(late)
                self._vote(thing, by, way, intent, off)

    @rule(
        place=st.sampled_from(["#team", "#team", "ana", "bob"]),
        first=st.sampled_from(["bob", "ana"]),
        second=st.sampled_from(["bob", "ana"]),
        ways=st.tuples(st.sampled_from(["press", "code"]), st.sampled_from(["press", "code"])),
    )
    def two_say_yes(self, place: str, first: str, second: str, ways: tuple[str, str]) -> None:
        """Two people say yes, or one twice. One of them may be the requester."""
        thing = self._asked_alone("ana", place, "sign")
        if thing is not None:
            for by, way in zip((first, second), ways, strict=True):
                self._vote(thing, by, way, "confirm", True)

    @rule(by=st.sampled_from(["bob", "cleo"]), way=st.sampled_from(["press", "code"]))
    def one_says_yes_twice(self, by: str, way: str) -> None:
        self.two_say_yes("#team", by, by, (way, "press"))

    @rule(place=OWN_PLACES, voters=st.permutations(sorted(SIGNERS)), way=st.sampled_from(["press", "code"]))
    def a_no_counts_for_all(self, place: str, voters: list[str], way: str) -> None:
        """One approver says no. The others still say yes."""
        thing = self._asked_alone("ana", place, "sign")
        if thing is not None:
            for by in voters:
                self._vote(thing, by, way, "cancel" if by == voters[0] else "confirm", True)

    @precondition(lambda self: not self.world.running and not self.witness.removed)
    @rule(place=OWN_PLACES, name=st.sampled_from(sorted(SIGNERS)), before=st.booleans())
    def an_approver_is_removed(self, place: str, name: str, before: bool) -> None:
        """The removed approver says yes right before or after the removal. Another approver says yes too."""
        thing = self._asked_alone("ana", place, "sign")
        other = min(SIGNERS - {name})
        if thing is not None:
            for by in (name, other):
                if by == (other if before else name):
                    self.world.removes(name)
                self._vote(thing, by, "code", "confirm", True)

    @rule(step=st.sampled_from(["read", "accept", "remove"]), lost=st.booleans())
    def hand_over_breaks(self, step: RelayStep, lost: bool) -> None:
        """The next process with a hand-over dies in this step."""
        self.world.place.breaks(step, lost=lost)

    @rule()
    def keep_time_at_once(self) -> None:
        self.run(self.world.keep_time_at_once())

    @rule(refuser=st.sampled_from(["bob", "cleo"]), verb=ELSEWHERE, place=OWN_PLACES, again=st.booleans())
    def a_no_and_the_like(self, refuser: str, verb: str, place: str, again: bool) -> None:
        """An approver says no. Ana asks for the like, and perhaps presses to ask again."""
        thing = self._asked_alone("ana", place, verb)
        if thing is None:
            return
        self._vote(thing, refuser, "code", "cancel", True)
        if again:
            self.press_again(0)
        self.then(self.world.asks("ana", place, verb, [self._invoice()]), True)

    def _asked_elsewhere(self) -> list[Thing]:
        return [thing for thing in self.witness.things if thing.tool in ASKED_ELSEWHERE]


class Planning(Ground):
    """Several actions are asked together, in one message or in several."""

    @rule(place=st.sampled_from(["ana", "ana", "#team"]), verb=PLAN_VERBS, count=st.integers(2, 4), parts=PARTS)
    def plan(self, place: str, verb: str, count: int, parts: list[Mood]) -> None:
        self.world.platform.moods = list(parts)
        self.then(self.world.asks("ana", place, verb, [self._invoice() for _ in range(count)]), True)

    @rule(
        verb=PLAN_VERBS,
        count=st.integers(2, 4),
        parts=PARTS,
        words=LISTED,
        late=SHORTER,
        both=st.booleans(),
        off=st.booleans(),
    )
    def plan_and_select(
        self, verb: str, count: int, parts: list[Mood], words: str, late: float, both: bool, off: bool
    ) -> None:
        self.plan("ana", verb, count, parts)
        if late:
            self.time_passes(late)
        self.run(self.world.selects("ana", "ana", words))
        if both:
            self.run(self.world.together("turn"))
            self.run(self.world.together("action"))
        if off:
            self.run(self.world.work_off())

    @rule(verb=PLAN_VERBS, words=NUMBERED, how=st.sampled_from(["down", "blocked"]))
    def select_from_a_part(self, verb: str, words: str, how: Mood) -> None:
        """Ana writes numbers although the last messages of the plan are missing."""
        self.plan_and_select(verb, 4, ["up", how], words, 0.0, False, True)

    @rule(words=LISTED, by=st.sampled_from(["ana", "ana", "bob"]), off=st.booleans())
    def select(self, words: str, by: str, off: bool) -> None:
        self.then(self.world.selects(by, "ana", words), off)

    @precondition(lambda self: self.witness.for_all)
    @rule(number=NUMBERS, by=st.sampled_from(["ana", "ana", "bob"]), both=st.booleans(), off=st.booleans())
    def press_all(self, number: int, by: str, both: bool, off: bool) -> None:
        tokens = list(self.witness.for_all)
        self._press_all(tokens[-1 - number % min(len(tokens), 4)], by, both, off)

    @rule(
        place=st.sampled_from(["ana", "#team"]),
        verb=PLAN_VERBS,
        count=st.integers(3, 4),
        parts=PARTS,
        which=st.integers(0, 7),
        both=st.booleans(),
        off=st.booleans(),
    )
    def plan_and_press_all(
        self, place: str, verb: str, count: int, parts: list[Mood], which: int, both: bool, off: bool
    ) -> None:
        before = len(self.witness.for_all)
        self.plan(place, verb, count, parts)
        tokens = list(self.witness.for_all)[before:]
        if tokens:
            self._press_all(tokens[which % len(tokens)], "ana", both, off)

    @rule(verb=PLAN_VERBS, how=st.sampled_from(["stop", "fails", "withdraw"]), late=st.sampled_from([0.0, 31.0]))
    def a_plan_ends_in_silence(self, verb: str, how: str, late: float) -> None:
        """Two items are confirmed. After the end of the first, the second ends without being done."""
        before = len(self.witness.for_all)
        self.plan("ana", verb, 2, [])
        for token in list(self.witness.for_all)[before:][:1]:
            self.run(self.world.presses("ana", "ana", token))
            self.run(self.world.step(0, "action"))
            if how == "stop":
                self.then(self.world.says("ana", "ana", "", command="stop"), not late)
            elif how == "fails":
                self.world.behaviour = "fails"
            if late:
                self.time_passes(late)
            self.run(self.world.work_off())

    @rule(
        verbs=st.lists(PLAN_VERBS, min_size=2, max_size=3),
        word=st.sampled_from(["yes", "yes", "no"]),
        words=UNDER_LISTS,
        late=SHORTER,
        off=st.booleans(),
    )
    def several_and_a_bare_word(self, verbs: list[str], word: str, words: str, late: float, off: bool) -> None:
        """With several open questions, a yes or a no brings a list, and Ana answers by number."""
        for verb in verbs:
            self.then(self.world.asks("ana", "ana", verb, [self._invoice()]), True)
        self.then(self.world.answers("ana", "ana", word), True)
        if late:
            self.time_passes(late)
        self.then(self.world.selects("ana", "ana", words), off)

    def _press_all(self, token: str, by: str, both: bool, off: bool) -> None:
        """Press a button for all; with `both` both processes then look for work at once."""
        self.run(self.world.presses(by, self.witness.token_place[token], token))
        if both:
            self.run(self.world.together("action"))
        if off:
            self.run(self.world.work_off())


class Changing(Ground):
    """A question is changed, not refused."""

    @rule(
        place=OWN_PLACES,
        verb=CHANGED_VERBS,
        pressed=st.booleans(),
        first=st.sampled_from(["", "", "hello", "yes", "equal", "quick"]),
        before=st.booleans(),
        off=st.booleans(),
        then=st.sampled_from(["old", "old", "new", "refuse", ""]),
    )
    def change(self, place: str, verb: str, pressed: bool, first: str, before: bool, off: bool, then: str) -> None:
        """Ana asks for another action instead, then answers the old or the new question.

        `first`: an earlier message: a question, a bare yes, the same call, or another message at once.
        """
        thing = self._asked_alone("ana", place, verb)
        if thing is None:
            return
        if pressed:
            self.then(self._answer("press", "ana", place, thing, "change"), True)
        self._say_first(place, verb, thing, first)
        text = f"{'' if pressed else 'yes, but '}{verb} {self._invoice()}"
        self.then(self.world.says("ana", place, text, ask=True), off)
        new = self.witness.things[-1]
        if new is thing:
            return
        thing.replaced = thing.replaced or (thing.changing == self.witness.doubts and not self.world.running)
        intent = "cancel" if then == "refuse" else "confirm"
        for by in ("bob", "cleo", "dan") if verb == "sign" and then else ("ana",) if then else ():
            answered = thing if then == "old" else new
            self._vote(answered, by, "code" if before else "press", intent, True)

    def _say_first(self, place: str, verb: str, thing: Thing, first: str) -> None:
        match first:
            case "hello":
                self.then(self.world.says("ana", place, "hello"), True)
            case "yes":
                for _ in range(2):
                    self.then(self.world.answers("ana", place, "yes"), True)
            case "equal":
                self.then(self.world.says("ana", place, f"{verb} {thing.invoice}", ask=True), True)
            case "quick":
                self.then(self.world.says("ana", place, "hello"), False)


class TakingBack(Ground):
    """The model takes back questions the person no longer wants."""

    @rule(
        place=OWN_PLACES,
        verb=CHANGED_VERBS,
        new=st.sampled_from(["", "", "same", "other"]),
        calls=st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6]),
        way=st.sampled_from(["press", "code"]),
        off=st.booleans(),
    )
    def take_back(self, place: str, verb: str, new: str, calls: int, way: str, off: bool) -> None:
        """Ana withdraws the wish, perhaps for another. The action is confirmed afterwards, or during that turn."""
        thing = self._asked_alone("ana", place, verb)
        if thing is None:
            return
        doubts = self.witness.doubts
        self.world.taken_back.discard(thing.invoice)  # an operator's replay may have asked again
        wish = {"": "", "same": f" {verb} {self._invoice()}", "other": f" archive {self._invoice()}"}[new]
        self.then(self.world.says("ana", place, f"withdraw {thing.invoice}{wish}", ask=bool(wish)), not calls)
        if calls:
            self.run(self.world.pause(0, "turn", calls))
        sure = not calls and doubts == self.witness.doubts and not self.world.running
        if sure and thing.invoice in self.world.taken_back and not thing.said_yes:
            thing.ended = True
        for by in ("bob", "cleo", "dan") if verb == "sign" else ("ana",):
            self._vote(thing, by, way, "confirm", True)
        if calls:
            self.then(self.world.go_on(), off)


class Allowing(Ground):
    """People allow the like for a while."""

    @rule(
        place=st.sampled_from(["ana", "#team", "#team"]),
        folder=FOLDERS,
        code=st.booleans(),
        plain=RARELY,
        uses=st.lists(st.tuples(st.sampled_from(["ana", "ana", "bob"]), FOLDERS, COPIES), min_size=1, max_size=4),
        behaviour=BEHAVIOURS,
        late=SHORTER,
        revoked=RARELY,
    )
    def allow_and_use(
        self,
        place: str,
        folder: str,
        code: bool,
        plain: bool,
        uses: list[tuple[str, str, int]],
        behaviour: Behaviour,
        late: float,
        revoked: bool,
    ) -> None:
        """Ana gives a permission, or a plain yes. Then Ana and others ask for the like."""
        thing = self._asked_alone("ana", place, "copy", folder)
        if thing is None:
            return
        self._allow(thing, code, plain)
        if late:
            self.time_passes(late)
        if revoked:
            self.revoke(place)
        for user, used_for, copies in uses:
            self.world.behaviour = behaviour
            self.copy_to("#team" if place == "#team" else user, user, used_for, copies, True)

    def _allow(self, thing: Thing, code: bool, plain: bool = False) -> None:
        if plain:
            self.then(self._answer("code" if code else "press", "ana", thing.place, thing, "confirm"), True)
        elif code or not self._has_button(thing, "standing"):
            self.then(self.world.types_code("ana", thing.place, thing, "ok", standing=True), True)
        else:
            self.then(self._answer("press", "ana", thing.place, thing, "standing"), True)

    @rule(folder=FOLDERS, code=st.booleans(), how=st.sampled_from(["again", "child"]))
    def allow_and_change(self, folder: str, code: bool, how: str) -> None:
        """A call asked again, or a replacement of a question, is asked in spite of a permission."""
        asked = self._asked_alone("ana", "ana", "copy", folder)
        given = self._asked_alone("ana", "ana", "copy", folder)
        if asked is None or given is None:
            return
        self._allow(given, code)
        invoice = f"INV-{self.asked}"
        if how == "again":
            self.world.behaviour = "fails"
            self.copy_to("ana", "ana", folder, 1, True)
            self.world.behaviour = "works"
            self.press_again(0)
        elif self._has_button(asked, "change"):
            self.then(self._answer("press", "ana", "ana", asked, "change"), True)
            if asked.changing == self.witness.doubts and not self.world.running:
                self.witness.asked_anew.add(invoice)
            self.copy_to("ana", "ana", folder, 1, True)

    @rule(
        code=st.booleans(),
        moves=st.tuples(RARELY, RARELY, RARELY),
        again=st.booleans(),
        back=st.booleans(),
        off=st.booleans(),
    )
    def allow_to_stamp(self, code: bool, moves: tuple[bool, bool, bool], again: bool, back: bool, off: bool) -> None:
        """The state seen by the preview changes before the yes, after it, or before a permitted call runs."""
        thing, folder = self._asked_alone("ana", "ana", "stamp"), self.world.folder
        if thing is None or self.world.running:
            return
        self.world.folder += moves[0]
        self._allow(thing, code)
        self.world.folder = folder if back else self.world.folder + moves[1]
        self.then(self.world.says("ana", "ana", f"stamp {self._invoice()}{' again' if again else ''}", ask=True), False)
        self.run(self.world.step(0, "turn"))
        self.world.folder += moves[2]
        if off:
            self.run(self.world.work_off())

    @rule(
        place=OWN_PLACES,
        person=st.sampled_from(["ana", "ana", "bob"]),
        folder=FOLDERS,
        copies=COPIES,
        off=st.booleans(),
    )
    def copy_to(self, place: str, person: str, folder: str, copies: int, off: bool) -> None:
        self.then(self.world.says(person, place, f"copy {self._invoice()} {folder} {copies}", ask=True), off)

    @rule(folder=FOLDERS, copies=st.tuples(COPIES, COPIES), off=st.booleans())
    def copy_two_at_once(self, folder: str, copies: tuple[int, int], off: bool) -> None:
        """Ana asks for two actions in two messages, before the bot has worked off the first."""
        self.copy_to("ana", "ana", folder, copies[0], False)
        self.copy_to("ana", "ana", folder, copies[1], off)

    @rule(place=OWN_PLACES)
    def revoke(self, place: str) -> None:
        doubts = self.witness.doubts
        self.then(self.world.says("ana", place, "", command="stop"), True)
        if doubts == self.witness.doubts and not self.world.running:
            self.witness.permissions.revoke("ana", place)


class Rooms(Machine, Approving, Planning, Changing, TakingBack, Allowing):
    """All steps in one world."""
