"""A gateway of two processes in one loop, the people in the chats, and the possible failures."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

from channels import (
    Address,
    ButtonPress,
    Event,
    Json,
    Message,
    MessageEdited,
    OptOut,
    Part,
    Reply,
)
from gateway import NothingDone, OutcomeUnknown, ToolContext
from gateway.engine.event_bodies import event_body, replay_body
from gateway.engine.parts import schedule_reply
from gateway.store.base import Store
from gateway.store.types import FOLDED_AFTER_SECONDS, Incoming, Key, Kind, Waiting
from tests.machine.bot import CALLED_AGAIN, TOOLS, copies_in, invoices_in, make_bot, meaning, person, signers, wish_in
from tests.machine.places import OnRedis, OnSqlite
from tests.machine.processes import KEYRING, Platform, Worker
from tests.machine.things import (
    ANSWER_WINDOW,
    ASKED_ONCE,
    TTL,
    Effect,
    ShownButton,
    Thing,
)
from tests.machine.witness import Witness

__all__ = ["LEASE", "PLACES", "Behaviour", "World", "address", "conversation"]

Behaviour = Literal[
    "works", "fails", "did nothing", "unknown, done", "unknown, not done", "dies before", "dies after", "outlasts"
]
"""The behaviour of the next effect."""
LEASE = 7.0
"""Seconds after which a dead process's lease has lapsed."""

PLACES = ("ana", "bob", "#team", "cleo", "dan", "eve")
_LONG_ENOUGH = 0.01
"""The duration of an effect while both processes work: long enough for the other's effect to begin."""


class World:
    """Two processes, a platform, people, and a witness."""

    def __init__(self, files: Path, place: OnSqlite | OnRedis) -> None:
        self.files = files
        self.place = place
        self.store: Store = place.store
        self.witness = Witness()
        self.platform = Platform(self)
        self.behaviour: Behaviour = "works"
        self.hold: asyncio.Event | None = None
        self.outlasting: list[tuple[Worker, str, threading.Event]] = []
        """The process, the invoice, and the gate of each waiting call in a thread."""
        self.inside: Counter[str] = Counter()
        """Invoice -> the calls now running under one lock."""
        self.folder = 1
        """The present target folder of an invoice."""
        self.called: Counter[str] = Counter()
        """Invoice -> the number of calls by the model, for repeated calls."""
        self.taken_back: set[str] = set()
        """The invoices of the questions taken back by the model."""
        self.bot = make_bot(self)
        self.workers = [Worker(self, "first"), Worker(self, "second")]
        self.filing = self.workers[0]
        """The process with the latest work."""
        self._effect_seconds = 0.0
        self._count = 2
        self.running: list[tuple[Worker, asyncio.Task[bool]]] = []
        self.events: list[Event] = []
        self.yes_events: list[int] = []
        """The indexes of Ana's bare yes events in her own chat."""

    # ── the machine room ──

    async def open(self) -> None:
        await self.store.open()

    async def close(self) -> None:
        for _, _, gate in self.outlasting:
            gate.set()
        for worker, task in self.running:
            worker.wire.calls_left = 0
            worker.wire.resume.set()
            task.cancel()
        await asyncio.gather(*(task for _, task in self.running), return_exceptions=True)
        await self.store.close()
        self.place.forget()

    async def now(self) -> float:
        return (await self.store.now()).timestamp()

    def jump(self, seconds: float) -> None:
        """Move time on, for deadlines and leases."""
        self.place.jump(seconds)

    async def step(self, worker: int, kind: Kind) -> bool:
        """Do one piece of work in one process, and replace dead processes."""
        found = await self.workers[worker].work(kind)
        self._bury()
        return found

    async def together(self, kind: Kind) -> None:
        """Have both processes work at once."""
        self._effect_seconds = _LONG_ENOUGH
        await asyncio.gather(*(worker.work(kind) for worker in self.workers))
        self._effect_seconds = 0.0
        self._bury()

    async def pause(self, worker: int, kind: Kind, calls: int) -> None:
        """Stop a process at its call number `calls` to the store; another process takes its place."""
        paused = self.workers[worker]
        paused.wire.pause_after = calls
        task = asyncio.create_task(paused.work(kind))
        stopped = asyncio.create_task(paused.wire.paused.wait())
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        paused.wire.pause_after = None
        if not task.done():
            self.witness.is_sure(died=True)
            self.running.append((paused, task))
            self._replace(paused)
            self.witness.doubts += 1
        self._bury()

    async def hold_effect(self, worker: int) -> None:
        """Stop a process in the middle of an effect."""
        holding = self.workers[worker]
        self.hold = holding.wire.resume
        task = asyncio.create_task(holding.work("action"))
        while not task.done() and self.hold is not None:
            await asyncio.sleep(0.0002)
        self.hold = None
        if not task.done():
            self.running.append((holding, task))
            self._replace(holding)
            self.witness.doubts += 1
        self._bury()

    async def let_go(self) -> None:
        """End the calls that have outlasted their timeout."""
        outlasting, self.outlasting = self.outlasting, []
        for _, _, gate in outlasting:
            gate.set()
        for worker, invoice, _ in outlasting:
            while len(worker.actions.late) and not worker.wire.paused.is_set():
                await asyncio.sleep(0.0002)
            if not worker.wire.is_cut and not worker.wire.paused.is_set():
                self.witness.outlasted.add(("file", invoice))
        self._bury()

    async def go_on(self) -> None:
        """Let the stopped processes go on, although others have taken over their work."""
        running, self.running = self.running, []
        for worker, task in running:
            worker.wire.resume.set()
            await task
        self._sure()

    def _bury(self) -> None:
        self._sure()
        for worker in self.workers:
            if worker.wire.is_cut:
                self.witness.doubts += 1
                self._replace(worker)
                self.jump(LEASE)

    def _replace(self, worker: Worker) -> None:
        self._count += 1
        self.workers[self.workers.index(worker)] = Worker(self, f"worker {self._count}")

    def _sure(self) -> None:
        self.witness.is_sure(died=any(worker.wire.is_cut for worker in self.workers))

    def deploy(self) -> None:
        """Replace both processes by processes of a new release with other tools."""
        self.witness.release += 1
        self.bot = make_bot(self)
        for worker in list(self.workers):
            self._replace(worker)

    async def keep_time_at_once(self) -> None:
        """Have both processes look for due events and hand the same events over."""
        await asyncio.gather(*(worker.keep_time() for worker in self.workers))
        self._bury()

    async def work_off(self) -> None:
        """Do all possible work."""
        kinds: tuple[Kind, ...] = ("turn", "memory", "action", "out")
        for number in range(200):
            await self.workers[0].keep_time()
            if any([await self.step(number % 2, kind) for kind in kinds]):
                continue
            if not await self.store.pending_decisions():
                if not self.running and not self.outlasting:
                    await self._be_quiet()
                return
        self.witness.violations.append("the work never ends")

    async def _be_quiet(self) -> None:
        self.witness.is_quiet()
        now = await self.now()
        if self.witness.has_old_ends(now) and not (await self.store.stats()).parts:
            self.witness.check_ends_are_told_in_time(now)

    async def until_the_end(self) -> None:
        """Repair all failures, and let all windows pass."""
        self.platform.moods, self.behaviour = [], "works"
        self.place.mend()
        for worker in self.workers:
            worker.wire.calls_left = None
        await self.let_go()
        await self.go_on()
        for _ in range(6):
            await self.work_off()
            self.jump(LEASE + 600)
        await self.work_off()

    # ── the bot ──

    def removes(self, name: str) -> None:
        """Remove the right of one signer."""
        self.witness.removed = frozenset({name})
        signing = self.bot.tool("sign")
        if signing is not None and signing.confirm is not None:
            signing.confirm.approvers = signers(self)

    def filed(self, invoice: str, ctx: ToolContext, release: int) -> str:
        """File an invoice, in a thread."""
        behaviour, self.behaviour = self.behaviour, "works"
        self.inside[invoice] += 1
        if self.inside[invoice] > 1:
            self.witness.violations.append(f"file {invoice}: two at once under one lock")
        if behaviour == "outlasts":
            gate = threading.Event()
            self.outlasting.append((self.filing, invoice, gate))
            gate.wait(60)
        self.inside[invoice] -= 1
        self.witness.happened(Effect(tool="file", invoice=invoice, folder="", key=ctx.idempotency_key, release=release))
        return f"file {invoice} is settled."

    async def effect(
        self, name: str, invoice: str, ctx: ToolContext, release: int, *, folder: str = "", copies: int = 1
    ) -> str:
        thing, returned, at = self.witness.begins(name, invoice), False, await self.now()
        since = len(self.witness.shown)
        folder, key = str(self.folder) if name in ("move", "stamp") else folder, ctx.idempotency_key
        effect = Effect(tool=name, invoice=invoice, folder=folder, key=key, release=release, copies=copies)
        try:
            await asyncio.sleep(self._effect_seconds)
            told = await self._done(effect)
            returned = True
            return told
        finally:
            self.witness.ends(thing, name, invoice, at, since, returned=returned)

    async def _done(self, effect: Effect) -> str:
        name, invoice = effect.tool, effect.invoice

        def happened() -> None:
            self.witness.happened(effect)

        behaviour, self.behaviour = self.behaviour, "works"
        if self.hold is not None:
            gate, self.hold = self.hold, None
            happened()
            await gate.wait()
            return f"{name} {invoice} is settled."
        if behaviour == "fails":
            raise RuntimeError("secret words of an exception")
        if behaviour == "did nothing":
            raise NothingDone("it was closed")
        if behaviour in ("dies before", "dies after"):
            if behaviour == "dies after":
                happened()
            for each in self.workers:
                each.wire.calls_left = 0
            raise OutcomeUnknown("the process is gone")
        if behaviour != "unknown, not done":
            happened()
        if behaviour != "works":
            raise OutcomeUnknown("no answer")
        return f"{name} {invoice} is settled."

    # ── people ──

    async def says(self, name: str, place: str, text: str, *, ask: bool = False, before: int = 0, **flags: Any) -> None:
        """Have a person write; `before`: the number of newest messages of the bot that the person had not seen."""
        number = len(self.events)
        seen = [str(each) for each, message in enumerate(self.witness.shown) if message.place == place]
        seen = seen[: len(seen) - before]
        event = Message(
            event_ids=(f"m{number}",),
            after=seen[-1] if seen else None,
            address=address(place),
            person=person(name),
            message_id=f"own {number}",
            text=text,
            answers_bot=address(place).group,  # so that the group's messages are heard
            **flags,
        )
        if text.startswith("yes, but "):
            self.witness.says_but(name, place)
        if ask:
            invoices = invoices_in(wish_in(text)) * (CALLED_AGAIN if text.endswith(" again") else 1)
            self.witness.wants(name, place, invoices, await self.now(), copies=copies_in(wish_in(text)))
        await self._do(event, name)

    async def asks(self, name: str, place: str, verb: str, invoices: Sequence[str]) -> None:
        """Have a person ask for an action.

        ``send`` is asked only in groups with all approvers; elsewhere ``pay`` is asked.
        """
        if verb == "send" and not place.startswith("#"):
            verb = "pay"
        await self.says(name, place, " ".join([verb, *invoices]), ask=True)

    async def presses(self, name: str, place: str, token: str) -> None:
        """Have a person press a button shown somewhere, perhaps long ago."""
        if self.witness.token_place[token] == place:
            await self._means(name, place, token)
        press = ButtonPress(
            event_ids=(f"p{len(self.events)}",), address=address(place), person=person(name), token=token
        )
        await self._do(press, name)

    async def _means(self, name: str, place: str, token: str) -> None:
        now, witness = await self.now(), self.witness
        if token in witness.again:
            witness.asks_again(token, name)
            return
        if token in witness.for_all:
            message, intent = witness.for_all[token]
            in_order = witness.in_order(message.things)
            answered = [each for each in message.things if intent == "confirm"]
            counts = [self._says_yes(each, name, place, now) for each in answered]
            if counts and all(counts):
                witness.selects(in_order)
            return
        thing, intent = witness.tokens[token]
        match intent:
            case "confirm":
                self._says_yes(thing, name, place, now)
            case "cancel":
                thing.changing = None
                witness.says_no(thing, name, place, now)
            case "standing" if self._says_yes(thing, name, place, now):
                witness.permissions.give(thing, now)

    def _says_yes(self, thing: Thing, name: str, place: str, now: float) -> bool:
        """Note a yes by button, code or reply. The yes also decides an action under change."""
        thing.changing = None
        return self.witness.says_yes(thing, name, place, TTL, now)

    async def types_code(self, name: str, place: str, thing: Thing, word: str, *, standing: bool = False) -> None:
        """Have a person write a word and a code; `standing`: the code that also gives the permission."""
        now, code = await self.now(), thing.standing_code if standing else thing.codes.get(place, thing.code)
        for other in self.witness.things:
            if code and code in (other.codes.get(place), other.standing_code):
                if word == "no":
                    other.changing = None
                    self.witness.says_no(other, name, place, now)
                elif self._says_yes(other, name, place, now) and code == other.standing_code:
                    self.witness.permissions.give(other, now)
        await self.says(name, place, f"{word} {code}")

    async def replies(self, name: str, number: int, word: str) -> None:
        """Have a person reply to one message of the bot, in the message's chat."""
        message = self.witness.shown[number]
        if word == "yes" and len(message.things) == 1:
            self._says_yes(message.things[0], name, message.place, await self.now())
        await self.says(name, message.place, word, reply_to=str(number))

    async def answers(self, name: str, place: str, word: str, **flags: Any) -> None:
        """Have a person write a bare yes or no."""
        thing = self.witness.asked_last(name, place)
        if word == "yes" and thing is not None and not flags:
            self.witness.says_yes(thing, name, place, ANSWER_WINDOW, await self.now())
        if (name, place, word) == ("ana", "ana", "yes"):
            self.yes_events.append(len(self.events))
        await self.says(name, place, word, **flags)

    async def selects(self, name: str, place: str, words: str) -> None:
        """Have a person answer the last shown list, by numbers or other words."""
        listed, now = self.witness.list_said_last(name, place), await self.now()
        if listed is not None:
            everything = words in ("all", "both")
            named = listed.named(meaning(words, len(listed.things)), everything=everything)
            in_order = self.witness.in_order(named)
            counts = [
                self.witness.says_yes(each, name, place, ANSWER_WINDOW, now, since=listed.at)
                for each in named
                if each.changing != self.witness.doubts
            ]
            if counts and all(counts) and not listed.intent:
                self.witness.selects(in_order)
        await self.says(name, place, words)

    async def edits(self, name: str, place: str, text: str) -> None:
        """Have a person edit their last message."""
        number = len(self.events)
        edit = MessageEdited(
            event_ids=(f"e{number}",),
            address=address(place),
            person=person(name),
            message_id=f"own {number - 1}",
            text=text,
        )
        await self._do(edit, name)

    async def opts(self, name: str, *, out: bool) -> None:
        """Have a person opt out, or in again."""
        ids = (f"o{len(self.events)}",)
        event = OptOut(event_ids=ids, address=address(name), person=person(name), opted_in=not out, told=False)
        await self._do(event, name)

    async def again(self, number: int) -> None:
        """Have the platform redeliver an event, without any act of a person."""
        await self._deliver(self.events[number])

    async def replay(self, number: int, *, decides: bool) -> None:
        """Have an operator replay an event like a dead letter. The replay may ask, and answers no question."""
        context, event = self.workers[0].context, self.events[number]
        text = event.text if isinstance(event, Message) else ""
        verb = wish_in(text).partition(" ")[0]
        if verb in ASKED_ONCE or text.startswith("withdraw "):
            return
        if isinstance(event, Message) and verb in TOOLS:
            self.witness.wanted.update(invoices_in(wish_in(event.text)))
        where, now = conversation(event.address.place), await self.store.now()
        waiting = Waiting(
            seq=0, conversation=where, stamp=now, body=event_body(context.keyring, where, event, now), pointed=False
        )
        edited = isinstance(event, MessageEdited)
        ids = (f"replay {number} {len(self.events)} {now}",)
        replayed = Incoming(
            conversation=where,
            event_ids=ids,
            body=replay_body(context.keyring, waiting),
            decides=decides and not edited,
        )
        await self.store.accept([replayed])

    async def notifies(self, place: str, text: str) -> None:
        """Have the author's code send a text."""
        timer = schedule_reply(KEYRING, conversation(place), address(place), Reply(text=text), await self.store.now())
        await self.store.accept([timer.incoming])

    async def _do(self, event: Event, name: str) -> None:
        now = await self.now()
        self.events.append(event)
        self.witness.heard.setdefault((name, event.address.place), []).append(now)
        said = event.token[-4:] if isinstance(event, ButtonPress) else getattr(event, "text", "")
        self.witness.log.append(f"{now:.1f} {name} in {event.address.place}, {type(event).__name__}: {said!r}")
        await self._deliver(event)

    async def _deliver(self, event: Event) -> None:
        for _ in range(3):
            taken = await self.workers[len(self.events) % 2].take(event)
            self._bury()
            if taken:
                return

    async def saw(self, to: Address, part: Part, *, lost: bool) -> int:
        """Note a part shown by the platform. `lost`: the sender does not get the answer."""
        edits = part.arguments["edits"]
        buttons = [ShownButton(button.token, button.style, button.label) for button in part.buttons]
        number = int(str(edits)) if edits is not None else None
        number = self.witness.saw(to.place, str(part.arguments["text"]), buttons, number, await self.now(), lost=lost)
        self.witness.doubts += lost
        return number

    def does_not_change(self, part: Part) -> None:
        """Note a part refused by the platform. The message to edit stays as before."""
        edits = part.arguments["edits"]
        if edits is not None:
            self.witness.shown[int(str(edits))].known = False

    # ── the end ──

    async def check_the_end(self) -> None:
        """Check that no action is open, no work waits, and the end of every shown action was reported."""
        violations, context = self.witness.violations, self.workers[0].context
        for place in PLACES:
            actions = await context.actions(conversation(place))
            violations += [
                f"{action.preview} is {action.state} for ever"
                for action in actions.by_id.values()
                if not action.settled and not (action.ballot_of is not None and self.witness.lost_an_index)
            ]
        self.jump(FOLDED_AFTER_SECONDS)  # outcomes without a later message are folded in
        await self.work_off()
        stats = await self.store.stats()
        left = {name: getattr(stats, name) for name in ("pointed", "ready", "leased", "parked", "parts", "timers")}
        if any(left.values()):
            violations.append(f"work is left: {left}")
        letters = await self.store.dead_letters()
        aside = " ".join(str(letter.part.body) for letter in letters if letter.part is not None).replace("\\", "")
        decisions = [letter.reason for letter in letters if letter.reason.startswith("a decision")]
        violations += [reason for reason in decisions if "seal check failed" not in reason]
        self.witness.check_everything_is_told(aside)
        self.witness.check_every_prompt_is_settled()
        self.witness.check_approvers_are_told_once()
        self.witness.check_all_that_was_told_is_true()
        for action_id in self.witness.effect_keys():
            await self._check_chain(action_id)

    async def _check_chain(self, action_id: str) -> None:
        violations = self.witness.violations
        partitions = {self.store.partition(conversation(place)) for place in PLACES}
        read = [await self.store.read(Key(partition, "audit")) for partition in sorted(partitions)]
        lines = [cast("dict[str, Json]", entry.value) for entries in read for entry in entries]
        mine = [line for line in lines if line["action"] == action_id]
        for before, line in itertools.pairwise(mine):
            if line["before"] != before["head"] and line["what"] != "forged":  # of an old copy, it shows where it broke
                violations.append(f"the audit of {action_id} is broken at {line['what']}")
        if not {"decided", "permitted"} & {str(line["what"]) for line in mine}:
            violations.append(f"the audit of {action_id} knows no decision")


def address(place: str) -> Address:
    return Address(channel="test", account="bot", place=place, group=place.startswith("#"))


def conversation(place: str) -> str:
    """Return the key of the conversation of this place."""
    return f"agent/{address(place)}"
