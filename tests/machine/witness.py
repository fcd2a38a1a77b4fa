"""A witness beside the gateway. The witness sees people's acts and the shown messages, and counts effects.

The witness's book is plain lists and dicts, and shares no code with `gateway.pending`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from tests.machine.permissions import Permissions
from tests.machine.texts import (
    BEGUN_BY_PERMISSION,
    CHANGED,
    DONE_BY_PERMISSION,
    REFUSED,
    REPLACED,
    TOO_LATE,
    UNDELIVERED,
    VOTE_COUNTED,
    Asked,
    Told,
    changing_in,
    ends_in,
    highest_number,
    invoice_in,
    is_answer_to_stop,
    numbered_button,
    numbered_list,
    questions_in,
    range_of,
    standing_code_in,
    subject_of,
)
from tests.machine.things import (
    ASKED_ELSEWHERE,
    BRAKED,
    DELIVERED,
    HELD,
    MOST_SHOWINGS,
    NEAR,
    PERMITTED,
    TTL,
    Brake,
    Effect,
    Finished,
    Listing,
    Selected,
    Showing,
    Shown,
    ShownButton,
    Thing,
)

__all__ = ["Witness"]


class Witness:
    """The book."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.log: list[str] = []
        """The acts, messages and effects in order, for a reader of a violation."""
        self.shown: list[Shown] = []
        self.things: list[Thing] = []
        self.asked_by: dict[str, str] = {}
        self.asked_in: dict[str, str] = {}
        self.asked_at: dict[str, float] = {}
        self.asked_doubts: dict[str, int] = {}
        """Invoice -> the number of doubts at the ask."""
        self.copies_of: dict[str, int] = {}
        """Invoice -> the number of wanted copies."""
        self.wanted: Counter[str] = Counter()
        """Invoice -> the number of requests about the invoice."""
        self.tokens: dict[str, tuple[Thing, str]] = {}
        self.for_all: dict[str, tuple[Shown, str]] = {}
        """The buttons for all items of a plan."""
        self.token_place: dict[str, str] = {}
        self.heard: dict[tuple[str, str], list[float]] = {}
        """(person, place) -> the moments of the person's acts there."""
        self.effects: list[Effect] = []
        self.release = 1
        self.outlasted: set[tuple[str, str]] = set()
        """Tool and invoice of the calls that outlasted their timeout and ended in a living process."""
        self.doubts = 0
        """The number of possible repeats of a message: lost answers, dead or stopped processes."""
        self.removed: frozenset[str] = frozenset()
        """The removed signers."""
        self.setbacks = 0
        """The number of messages that did not reach the platform, and of late hand-overs."""
        self.edits = True
        """True: the platform changes shown messages."""
        self.again: dict[str, tuple[str, str]] = {}
        """The buttons that ask again -> tool and invoice."""
        self.asked_anew: set[str] = set()
        """The invoices that no permission covers: a person pressed to ask again, or is changing the question."""
        self.permissions = Permissions()
        self.selected: list[Selected] = []
        self._inside: list[Thing] = []
        self._finished: list[Finished] = []
        self._returned: set[tuple[str, str]] = set()
        self._brakes: dict[tuple[str, str, str], Brake] = {}
        self._unsure: list[Shown] = []

    @property
    def lost_an_index(self) -> bool:
        """True after a change of an index: no part of the gateway then ends the ballots of a lost action."""
        return any("index" in thing.changed for thing in self.things)

    @property
    def troubles(self) -> int:
        return self.doubts + self.setbacks

    # ── people ──

    def wants(self, person: str, place: str, invoices: Sequence[str], at: float, *, copies: int = 1) -> None:
        self.copies_of |= dict.fromkeys(invoices, copies)
        self.asked_by |= dict.fromkeys(invoices, person)
        self.asked_in |= dict.fromkeys(invoices, place)
        self.asked_at |= dict.fromkeys(invoices, at)
        self.asked_doubts |= dict.fromkeys(invoices, self.doubts)
        self.wanted.update(invoices)

    def says_but(self, person: str, place: str) -> None:
        """Note a yes that asks for something else: the next question of the same tool may replace an open one."""
        for thing in self.things:
            thing.given_up = thing.given_up or (thing.requester, thing.place) == (person, place)

    def says_yes(
        self, thing: Thing, person: str, place: str, window: float, now: float, *, since: float | None = None
    ) -> bool:
        """Note a yes. Returns True if the yes counts: from a decider, in a right chat, in time.

        The time begins with the first showing known to the gateway, or with `since`.
        """
        thing.tried[place] += 1
        if person not in thing.deciders or not thing.may_answer(person, place):
            return False
        begun = self._begun(thing, place, window) if since is None else since
        counts = now <= begun + window + NEAR
        if counts:
            thing.said_yes.add(person)
        return counts

    def says_no(self, thing: Thing, person: str, place: str, now: float) -> None:
        """Note a no, which counts from a decider or the requester. A running action does not end by a no."""
        may = person in thing.deciders - self.removed or (person == thing.requester and place == thing.place)
        if may and thing.may_answer(person, place) and now <= thing.showings[-1].at + TTL - NEAR:
            thing.said_no = self.doubts
            thing.refused_by.setdefault(person, now)

    def asks_again(self, token: str, person: str) -> None:
        _, invoice = self.again[token]
        if person == self.asked_by[invoice]:
            self.wanted[invoice] += 1
            self.asked_anew.add(invoice)

    def is_quiet(self) -> None:
        """All work is done and no process stands still: a no has ended each action that had not begun."""
        for thing in self.things:
            begun = any((effect.tool, effect.invoice) == (thing.tool, thing.invoice) for effect in self.effects)
            if thing.said_no == self.doubts and not begun and thing.tool not in ("archive", "file"):
                thing.ended = True

    def _begun(self, thing: Thing, place: str, window: float) -> float:
        """Return the latest possible beginning of the time to answer."""
        known: dict[str, float] = {}
        for showing in thing.showings:
            if showing.sure:
                known.setdefault(showing.place, showing.at)
        if known and window == TTL:
            return max(known.values())
        return max(showing.at for showing in thing.showings if window == TTL or showing.place == place)

    def asked_last(self, person: str, place: str) -> Thing | None:
        """Return the action that a bare yes of this person would answer."""
        here = self._last_words(person, place)
        thing = here.things[0] if here is not None and len(here.things) == 1 else None
        return thing if thing is None or thing.changing != self.doubts else None

    def list_said_last(self, person: str, place: str) -> Listing | None:
        """Return the list that this person can answer by number: all its messages are shown, and none after."""
        last = self._last_words(person, place)
        if last is None or last.which is not None or not last.total:
            return last.which if last is not None else None
        found: dict[int, Thing] = {}
        for message in reversed([each for each in self.shown if each.place == place]):
            mine = {number: thing for number, thing in zip(message.numbers, message.things, strict=True) if number}
            if not mine or any(found.get(number, thing) is not thing for number, thing in mine.items()):
                break
            found |= mine
        numbers = range(1, last.total + 1)
        return Listing([found[number] for number in numbers], last.at) if found.keys() == {*numbers} else None

    def selects(self, things: Sequence[Thing]) -> None:
        """Note the items of a plan confirmed by one answer, in order."""
        self.selected.append(Selected(list(things), self.doubts))

    @staticmethod
    def in_order(things: Sequence[Thing]) -> list[Thing]:
        """Return the items that one answer would confirm in order. An item confirmed alone keeps no order."""
        return [thing for thing in things if thing.tool in ("pay", "move") and not thing.said_yes]

    def _last_words(self, person: str, place: str) -> Shown | None:
        here = [message for message in self.shown if message.place == place]
        if not here or not (here[-1].things or here[-1].which) or place.startswith("#"):
            return None
        since = [at for at in self.heard.get((person, place), []) if at >= here[-1].at]
        return here[-1] if not since else None

    # ── the platform ──

    def saw(
        self, place: str, text: str, buttons: Sequence[ShownButton], edits: int | None, at: float, *, lost: bool = False
    ) -> int:
        """Note a message and return the message's number. `lost`: the gateway does not learn the number."""
        live = any(button.style != "plain" for button in buttons)
        what = f"{len(self.shown)}" if edits is None else f"edits {edits}"
        labels = {button.token[-4:]: button.label for button in buttons}
        self.log.append(f"{at:.1f} bot in {place} [{what}{', lost' * lost}]: {text!r} {labels}")
        self._note_again(place, text, buttons, edits)
        if edits is not None:
            message = self.shown[edits]
            message.edited, message.live = True, live
            if REPLACED in text and len(message.things) == 1:
                message.things[0].replaced = True
            return edits
        things = self._prompted(place, text, at) if live else []
        message = Shown(place, text, at, things, list(buttons), live=live)
        message.lost = lost
        message.numbers = [question.number for question in questions_in(text)] if things else []
        message.total = highest_number(text) if things else 0
        if (listed := numbered_list(text)) is not None:
            intent, codes = listed
            coded = {thing.codes[place]: thing for thing in self.things if place in thing.codes}
            message.which = Listing([coded[code] for code in codes if code in coded], at, intent)
        self.shown.append(message)
        self._unsure.append(message)
        self._note_buttons(message, buttons)
        if (changing := changing_in(text)) is not None:
            mine = [each for each in self.things if (each.tool, each.invoice, each.place) == (*changing, place)]
            mine[-1].changing, mine[-1].given_up = self.doubts, True
        for told in ends_in(text) if not things else ():
            self._note_end(place, told, at)
        if text.startswith(TOO_LATE):
            for thing in self.things:
                thing.said_no = None if place in (thing.place, *thing.codes) else thing.said_no
        return len(self.shown) - 1

    def _note_end(self, place: str, told: Told, at: float) -> None:
        if told.line.startswith(DONE_BY_PERMISSION) and (told.tool, told.invoice) not in self._returned:
            self.violations.append(f"{told.tool} {told.invoice}: told done under a permission before it was")
        if told.end not in ("not done", "tampered"):
            return
        named = [thing for thing in self._about(place, told) if not thing.ended and not self._has_unseen(thing)]
        for thing in named[:1]:
            thing.ended = told.end != "tampered" or place == thing.place  # one ballot is not the others
            others = {person: when for person, when in thing.refused_by.items() if person != thing.requester}
            if told.line.startswith(REFUSED) and place == thing.place and others and others == thing.refused_by:
                like = (thing.tool, thing.requester, thing.place)
                self._brakes[like] = Brake(known=at, until=min(others.values()) + BRAKED - NEAR)

    def _note_again(self, place: str, text: str, buttons: Sequence[ShownButton], edits: int | None) -> None:
        subject = subject_of(text)
        for button in buttons:
            if subject is not None and button.label.startswith("Ask ") and button.label.endswith("again"):
                self.again[button.token] = subject
                self.token_place[button.token] = place

    def is_sure(self, *, died: bool) -> None:
        """The gateway knows all messages sent by a process that lives."""
        for message in self._unsure if not died else ():
            message.known = not message.lost
            for thing in message.things if not message.lost else ():
                for showing in thing.showings:
                    showing.sure = showing.sure or (showing.place, showing.at) == (message.place, message.at)
        self._unsure = []

    def _prompted(self, place: str, text: str, at: float) -> list[Thing]:
        things = []
        for question in questions_in(text):
            tool, invoice = question.tool, question.invoice
            thing = self._thing(place, question, at)
            thing.showings.append(Showing(place, at))
            times = sum(showing.place == place for showing in thing.showings)
            if times > MOST_SHOWINGS + self.doubts - thing.doubts:
                self.violations.append(f"{tool} {invoice}: shown {times} times")
            thing.standing_code = standing_code_in(text) or thing.standing_code
            things.append(thing)
        return things

    def _note_buttons(self, message: Shown, buttons: Sequence[ShownButton]) -> None:
        things = message.things
        numbered = dict(zip(message.numbers, things, strict=True))
        for token, style, label in buttons if things else ():
            self.token_place[token] = message.place
            intent = "cancel" if style == "cancel" else "confirm"
            if label.endswith(" all") or range_of(label) is not None:
                self.for_all[token] = (message, intent)
            elif (one := numbered_button(label)) is not None:
                if one[1] in numbered:
                    self.tokens[token] = (numbered[one[1]], one[0])
            elif style == "plain":
                self.tokens[token] = (things[0], "change" if label == "Change" else "standing")
            elif len(things) == 1:
                self.tokens[token] = (things[0], intent)

    def _thing(self, place: str, question: Asked, at: float) -> Thing:
        _, tool, invoice, folder, code = question
        for thing in self.things:
            here = thing.codes.setdefault(place, code) if self._is_asked(thing, tool, invoice, place) else None
            if here == code:
                if thing.folder != folder:
                    self.violations.append(f"{tool} {invoice}: its question changed")
                return thing
        asked_in = self.asked_in[invoice] if tool in ASKED_ELSEWHERE else place
        doubts = self.asked_doubts.get(invoice, self.doubts)
        thing = Thing(asked_in, tool, invoice, folder, self.asked_by[invoice], self.release, doubts, {place: code})
        self.things.append(thing)
        if sum(each.invoice == invoice for each in self.things) > self.wanted[invoice]:
            self.violations.append(f"{tool} {invoice}: asked though nobody wanted it again")
        self._check_brake(thing, at)
        return thing

    def _check_brake(self, thing: Thing, at: float) -> None:
        """Check that after an approver's no, the like is asked only after a press of the requester to ask again."""
        brake = self._brakes.get((thing.tool, thing.requester, thing.place))
        tampered = any("index" in each.changed for each in self.things if each.place == thing.place)
        if brake is None or tampered or thing.invoice in self.asked_anew:
            return
        if self.asked_at[thing.invoice] > brake.known and at < brake.until:
            self.violations.append(f"{thing.tool} {thing.invoice}: asked though an approver had refused the like")

    @staticmethod
    def _is_asked(thing: Thing, tool: str, invoice: str, place: str) -> bool:
        return (thing.tool, thing.invoice) == (tool, invoice) and (place == thing.place or tool in ASKED_ELSEWHERE)

    def _about(self, place: str, told: Told) -> list[Thing]:
        """Return the actions of a line. A tampered record is reported by code only."""
        return [
            thing
            for thing in self.things
            if place in (thing.place, *thing.codes)
            and (
                (thing.tool, thing.invoice) == (told.tool, told.invoice)
                or (not told.invoice and told.line.endswith(f": {thing.codes.get(place)}"))
            )
        ]

    # ── tools ──

    def happened(self, effect: Effect) -> None:
        what = f"{effect.tool} {effect.invoice}"
        self.log.append(f"{effect}, doubts {self.doubts}")
        asked = [thing for thing in self.things if (thing.tool, thing.invoice) == (effect.tool, effect.invoice)]
        agreed = [thing for thing in asked if thing.is_agreed(self.removed)]
        if effect.tool in PERMITTED and not agreed and self._is_permitted(effect):
            pass
        elif not asked:
            self.violations.append(f"{what}: nobody was ever shown that")
        elif not agreed:
            self.violations.append(f"{what}: nobody who may has said yes in time")
        elif all(thing.ended for thing in asked):
            self.violations.append(f"{what}: people had been told that it will not happen")
        elif all(thing.replaced for thing in asked):
            self.violations.append(f"{what}: another question had taken its place")
        elif effect.folder not in [thing.folder for thing in agreed]:
            self.violations.append(f"{what}: folder {effect.folder} was not the one that was shown")
        elif effect.release not in [thing.release for thing in agreed]:
            self.violations.append(f"{what}: done by a release that was not the one that asked")
        if effect.copies != self.copies_of.get(effect.invoice, effect.copies):
            self.violations.append(f"{what}: {effect.copies} copies were not what somebody had asked for")
        self._check_order(effect)
        self.effects.append(effect)
        times = sum(effect.key == other.key for other in self.effects)
        if times > (3 if effect.tool == "archive" else 1):
            self.violations.append(f"{what}: happened {times} times on one yes")
        same = [other for other in self.effects if (other.tool, other.invoice) == (effect.tool, effect.invoice)]
        confirmed = {other.key for other in same if not self.permissions.is_used_by(other.key)}
        if len(confirmed) > max(1, len(agreed)):
            self.violations.append(f"{what}: happened for more actions than were confirmed")

    def _is_permitted(self, effect: Effect) -> bool:
        """Return True if the requester has allowed this tool here for a while."""
        where = self.asked_by[effect.invoice], self.asked_in[effect.invoice], effect.tool, effect.folder
        if self.permissions.is_used_by(effect.key):
            return True
        same = [each for each in self.effects if (each.tool, each.invoice) == (effect.tool, effect.invoice)]
        if same or effect.invoice in self.asked_anew:
            return False
        return self.permissions.use(where, effect.key, effect.release, self.asked_at[effect.invoice], effect.copies)

    def begins(self, tool: str, invoice: str) -> Thing | None:
        """A tool is called: no other item of the plan may be running, unless there was trouble since."""
        thing = next((each for each in self.things if (each.tool, each.invoice) == (tool, invoice)), None)
        for selected in self.selected:
            if thing in selected.things and selected.doubts == self.doubts:
                self.violations += [
                    f"{tool} {invoice}: began while {other.invoice} of its plan was under way"
                    for other in self._inside
                    if other in selected.things and other is not thing
                ]
        if thing is not None:
            self._inside.append(thing)
        return thing

    def ends(self, thing: Thing | None, tool: str, invoice: str, at: float, since: int, *, returned: bool) -> None:
        """Note the end of a call that began at `at`, after `since` messages.

        Without `returned` the call was cut off, maybe by a process that has reported the end already.
        """
        if thing is not None:
            self._inside.remove(thing)
        if returned:
            self._returned.add((tool, invoice))
        if returned or tool != "archive":  # an idempotent tool is tried again
            self._finished.append(Finished((tool, invoice), at, self.troubles, len(self.shown) if returned else since))

    def _check_order(self, effect: Effect) -> None:
        done = {(each.tool, each.invoice) for each in self.effects}
        for selected in self.selected:
            items = [(thing.tool, thing.invoice) for thing in selected.things]
            mine = (effect.tool, effect.invoice)
            if selected.doubts == self.doubts and mine in items and mine not in done:
                later = done & {*items[items.index(mine) + 1 :]}
                self.violations += [f"{effect.tool} {effect.invoice}: after {each} of its plan" for _, each in later]

    # ── the end ──

    def check_ends_are_told_in_time(self, now: float) -> None:
        """All work is done and no part waits: check that ends older than `HELD` have been reported."""
        for finished in [each for each in self._finished if now > each.at + HELD + NEAR]:
            self._finished.remove(finished)
            tool, invoice = finished.what
            later = self.shown[finished.shown :]
            told = any((each.tool, each.invoice) == finished.what for m in later for each in ends_in(m.text))
            tampered = any(thing.changed for thing in self.things if thing.place == self.asked_in[invoice])
            if not told and not tampered and finished.troubles == self.troubles:
                self.violations.append(f"{tool} {invoice}: its end was not told within {HELD:.0f} seconds")

    def has_old_ends(self, now: float) -> bool:
        return any(now > each.at + HELD + NEAR for each in self._finished)

    def check_everything_is_told(self, aside: str) -> None:
        """Check that the end of every shown action was reported, or the report lies `aside`.

        In the chat of the request a new message reports; in an approver's own chat an edit may.
        """
        for thing in self.things:
            for place in dict.fromkeys([thing.place, *thing.codes]):
                told = self._is_told(thing) if place == thing.place else self._is_told_elsewhere(thing, place)
                if not told and thing.invoice not in aside and len(thing.changed) < 2:
                    self.violations.append(f"{thing.tool} {thing.invoice}: its end was told nobody in {place}")
        self._check_permitted_calls(aside)

    def _is_told(self, thing: Thing) -> bool:
        """Return True if a message after the question reports the end. A new question may report for a changed one."""
        began = next((number for number, message in enumerate(self.shown) if thing in message.things), 0)
        for message in [each for each in self.shown[began:] if each.place == thing.place]:
            text = message.text.replace("\\", "")
            ends = list(ends_in(text)) if not message.things else []
            like = [each.tool for each in message.things] if text.startswith(CHANGED) else []
            like += [told.tool for told in ends if told.line.startswith(UNDELIVERED)]
            if thing.tool in like or any(thing in self._about(thing.place, told) for told in ends):
                return True
            if is_answer_to_stop(text) or text.startswith(f"**{self._headline(thing)}**\n"):
                return True
        same = [each for each in self.things if (each.tool, each.invoice) == (thing.tool, thing.invoice)]
        return thing.replaced or thing is not same[-1] or self._is_late(thing) or self._is_replaced_late(thing)

    def _is_late(self, thing: Thing) -> bool:
        """Return True if the question surely came too late, so the message of the ask was dropped."""
        sure = [showing.at for showing in thing.showings if showing.sure and showing.place == thing.place]
        return not sure or min(sure) > self.asked_at[thing.invoice] + DELIVERED - NEAR

    def _is_replaced_late(self, thing: Thing) -> bool:
        """Return True if the message of the question that replaced this one was dropped."""
        after = self.things[self.things.index(thing) + 1 :]
        like = [each for each in after if (each.tool, each.place) == (thing.tool, thing.place)]
        here = [message for message in self.shown if message.place == thing.place and not message.things]
        told = {each.invoice for message in here for each in ends_in(message.text) if each.tool == thing.tool}
        never_shown = told - {each.invoice for each in self.things}
        return thing.given_up and (bool(never_shown) or any(self._is_late(each) for each in like))

    def _is_told_elsewhere(self, thing: Thing, place: str) -> bool:
        for message in self.shown:
            if message.place == place and thing in message.things and message.edited:
                return True
            text = message.text.replace("\\", "")
            if message.place == place and not message.things and invoice_in(text) == thing.invoice:
                return True
            if message.place == place and is_answer_to_stop(text) and message.at >= thing.showings[0].at:
                return True
        return False

    def _check_permitted_calls(self, aside: str) -> None:
        """Check the reports of permitted calls: at the beginning and at the end, and "done" only if done."""
        texts = [message.text.replace("\\", "") for message in self.shown if not message.things]
        begun = {invoice_in(text) for text in texts if text.startswith(BEGUN_BY_PERMISSION)}
        ended = {told.invoice for text in texts for told in ends_in(text)}
        used = {effect.invoice for effect in self.effects if self.permissions.is_used_by(effect.key)}
        changed = any(thing.changed for thing in self.things)
        for invoice in sorted(used - begun):
            if invoice not in aside:
                self.violations.append(f"{invoice}: nobody was told that it was permitted")
        stopped = {message.place for message in self.shown if is_answer_to_stop(message.text)}
        for invoice in sorted(begun - ended):
            if invoice not in aside and not changed and self.asked_in[invoice] not in stopped:
                self.violations.append(f"{invoice}: permitted, and its end was told nobody")

    def check_every_prompt_is_settled(self) -> None:
        """Check that no message with a number known to the gateway still has live buttons."""
        for message in self.shown if self.edits else ():
            if message.known and message.live and message.things and not any(each.changed for each in message.things):
                names = ", ".join(f"{thing.tool} {thing.invoice}" for thing in message.things)
                self.violations.append(f"{names}: a question in {message.place} is open for ever")

    def check_approvers_are_told_once(self) -> None:
        """Check that an approver reads an outcome once, and one count for each yes."""
        for thing in self.things:
            for place in [place for place in thing.codes if place != thing.place]:
                again = self.doubts - thing.doubts
                here = [m.text.replace("\\", "") for m in self.shown if m.place == place and not m.things]
                told = Counter(text for text in here if text.startswith(f"**{self._headline(thing)}**\n"))
                counted = [text for text in here if text.startswith(VOTE_COUNTED) and self._headline(thing) in text]
                if any(times > self._count_same(thing) + again for times in told.values()):
                    self.violations.append(f"{thing.tool} {thing.invoice}: its end was told twice in {place}")
                same = [each for each in self.things if (each.tool, each.invoice) == (thing.tool, thing.invoice)]
                if len(counted) > sum(each.tried[place] for each in same) + again:
                    self.violations.append(f"{thing.tool} {thing.invoice}: a yes was counted twice in {place}")

    def _has_unseen(self, thing: Thing) -> bool:
        """Return True if the call was asked once more without a shown question: an end may be about that question."""
        return self.wanted[thing.invoice] > self._count_same(thing)

    def _count_same(self, thing: Thing) -> int:
        return sum((each.tool, each.invoice) == (thing.tool, thing.invoice) for each in self.things)

    @staticmethod
    def _headline(thing: Thing) -> str:
        return f"{thing.tool.capitalize()} invoice “{thing.invoice}”"

    def check_all_that_was_told_is_true(self) -> None:
        """Check that "done" happened, and "not done" or "failed" did not. Repeated and permitted calls are left out."""
        for thing in self.things:
            what = (thing.tool, thing.invoice)
            permitted = any(self.permissions.is_used_by(each.key) for each in self.effects if each.invoice == what[1])
            if self._count_same(thing) > 1 or self._has_unseen(thing) or permitted:
                continue
            told = [end for message in self.shown if (end := self._end_of(thing, message)) is not None]
            happened = any((effect.tool, effect.invoice) == what for effect in self.effects)
            last = told[-1] if told else "unknown"
            if last == "done" and not happened:
                self.violations.append(f"{thing.tool} {thing.invoice}: told done, and it never happened")
            if last == "not done" and happened:
                self.violations.append(f"{thing.tool} {thing.invoice}: told not done, and it happened")
            if what in self.outlasted and last != "done" and not thing.changed:
                self.violations.append(f"{thing.tool} {thing.invoice}: its late end was told nobody")

    def _end_of(self, thing: Thing, message: Shown) -> Literal["done", "not done", "unknown"] | None:
        """Return the end of the action according to a message; None without one."""
        text = message.text.replace("\\", "")
        if message.things or message.place not in (thing.place, *thing.codes):
            return None
        if message.place != thing.place and text.startswith(f"**{self._headline(thing)}**\n"):
            note = text.partition("\n")[2]
            return "done" if note.startswith("✅") else "unknown" if note.startswith("❔") else "not done"
        about = [told for told in ends_in(text) if (told.tool, told.invoice) == (thing.tool, thing.invoice)]
        # An equal second question may not arrive: then "not done" is about the second question.
        was_shown = any(showing.sure for showing in thing.showings)
        ends = [told.end for told in about if not (was_shown and told.line.startswith(UNDELIVERED))]
        if not ends or ends[-1] == "tampered":
            return None
        return "not done" if ends[-1] == "failed" else ends[-1]

    def effect_keys(self) -> Iterable[str]:
        """Return the idempotency keys of all effects."""
        return {effect.key for effect in self.effects}
