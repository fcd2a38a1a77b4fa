"""A gateway of two processes in one loop, what may go wrong with it, and a witness who stands beside it.

The witness sees only what people say and what the platform shows, and keeps its own book of it in a plain dict: it
shares no code with `gateway.pending`.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from redis import Redis

from channels import (
    Address,
    Ambiguous,
    ButtonPress,
    Capabilities,
    Event,
    Json,
    Message,
    MessageEdited,
    OptOut,
    Parsed,
    Part,
    Person,
    Receipt,
    Reply,
    Unavailable,
    Undeliverable,
    WebhookRequest,
    WebhookResponse,
)
from gateway import Agent, ChannelAgent, NothingDone, OutcomeUnknown, ToolContext, tool
from gateway.access import allow
from gateway.artifacts import ArtifactStore
from gateway.engine.actions import Actions
from gateway.engine.crew import Crew
from gateway.engine.decisions import Decisions
from gateway.engine.delivery import Delivery
from gateway.engine.inbox import Inbox
from gateway.engine.leases import READS
from gateway.engine.shared import Shared
from gateway.engine.turns import Turns
from gateway.observe import Feed
from gateway.pending.seal import Keyring
from gateway.providers.base import Request, Response, ToolCall
from gateway.store.base import Key, Kind, Put, Store, StoreError, Transaction
from gateway.store.redis import RedisStore
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Clock
from tests.engine.wire import Wire
from tests.stored import action_of, edited

__all__ = ["LEASE", "TTL", "Behaviour", "Mood", "OnRedis", "OnSqlite", "Places", "Thing", "World"]

Behaviour = Literal["works", "fails", "did nothing", "unknown, done", "unknown, not done", "dies before", "dies after"]
"""What the next effect does."""
Mood = Literal["up", "down", "lost answer", "blocked"]
"""What the platform does with the next message; blocked is only ever a prompt."""

ANSWER_WINDOW, TTL = 60.0, 900.0
NEAR = 2.0
"""Seconds within which the witness does not know which of two moments was first."""
LEASE = 7.0
"""Seconds after which a lease of a process that died has lapsed."""

PLACES = ("ana", "bob", "#team")

_KEY = Keyring([b"a key of more than 16 bytes"])
_PROMPT = re.compile(r"\*\*(Pay|Archive) invoice (INV\\-\d+)\?\*\*.*?\*\*OK ([0-9A-Z]{4})\*\*", re.DOTALL)
_TAMPERED = "This is no longer as it was shown"
_NOT_DONE = (
    "Not done: ",
    "This has expired and nothing was done",
    _TAMPERED,
    "This was confirmed, but could not be started",
)
_TOO_LATE = re.compile(r"This has expired and nothing was done\\?\. Ask again if you still want it\\?\.")
"""The answer to a late yes: about something that people may have been told of before."""


@dataclass(eq=False)
class Thing:
    """Something that people were asked about, as the witness saw it."""

    place: str
    tool: str
    invoice: str
    code: str
    requester: str
    showings: list[tuple[float, bool]] = field(default_factory=list)
    """When its prompt was shown, and whether the gateway is sure to know that it was."""
    yes: bool = False
    """Somebody who may has said yes, in time and in a way that counts."""
    ended: bool = False
    """People were told that it will not happen."""


@dataclass(eq=False)
class Shown:
    place: str
    text: str
    at: float
    things: list[Thing]
    tokens: list[str]
    edited: bool = False


class Model:
    """``pay INV-1 INV-2`` and ``archive INV-3`` call the tools; anything else is talk."""

    name = "test"

    async def complete(self, request: Request) -> Response:
        last = request.messages[-1]
        said = next((message.content for message in reversed(request.messages) if message.role == "user"), "")
        verb, *invoices = said.split() or [""]
        if last.role == "tool" or verb not in ("pay", "archive"):
            return Response(content="I see.")
        calls = [ToolCall(call_id=f"c{n}", name=verb, args={"invoice_id": each}) for n, each in enumerate(invoices)]
        return Response(tool_calls=tuple(calls), finish="tools")

    async def stream(self, request: Request) -> Any:
        yield await self.complete(request)

    async def close(self) -> None:
        """Nothing is held."""


class Platform:
    """Shows what it is sent and tells the witness; in a bad mood it does not, or does not say that it did."""

    name: ClassVar[str] = "test"
    capabilities = Capabilities(max_text=100_000, buttons=100, button_label=100, edit=True, bare_yes="ordered")

    def __init__(self, world: World) -> None:
        self._world = world
        self.mood: Mood = "up"

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Literal["webhook", "polling"]) -> Self:
        raise ValueError("made by the world it is in")

    async def start(self, http: Any) -> None:
        """Nothing is needed."""

    async def close(self) -> None:
        """Nothing is held."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """There is no webhook."""

    def parse(self, request: WebhookRequest) -> Parsed:
        return Parsed(events=(), response=WebhookResponse(status=404))

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return [Part(call="show", arguments={"text": reply.text, "edits": reply.edits}, buttons=reply.buttons)]

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return message.after == receipt.message_id

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        mood, self.mood = self.mood, "up"
        if mood == "down":
            raise Unavailable("503")
        if mood == "blocked" and part.buttons:
            raise Undeliverable("403")
        number = await self._world.saw(address, part)
        if mood == "lost answer":
            raise Ambiguous("no answer")
        return Receipt(message_id=str(number))


class Worker:
    """One process."""

    def __init__(self, world: World, name: str) -> None:
        self.wire = Wire(world.store)
        self.shared = Shared(
            store=cast("Store", self.wire),
            channels={"test": cast("Any", world.platform)},
            bot=world.bot,
            keyring=_KEY,
            artifacts=ArtifactStore(world.files, [b"a key of more than 16 bytes"], public_url=None, now=_now),
            feed=Feed(now=_now),
            worker=name,
        )
        self.decisions = Decisions(self.shared)
        self.inbox = Inbox(self.shared, self.decisions, allow(["*"]))
        turns, actions, delivery = Turns(self.shared, self.decisions), Actions(self.shared), Delivery(self.shared)
        self.shared.sending = {"test": Crew(self.shared.tasks, "out", 64, delivery.run)}
        self._runs: dict[Kind, Callable[[Any], Awaitable[Any]]] = {
            "turn": turns.run,
            "action": actions.run,
            "out": delivery.run,
        }

    async def take(self, event: Event) -> bool:
        """One delivery of the platform; False: it will deliver it again."""
        try:
            parsed = Parsed(events=(event,), response=WebhookResponse())
            await self.inbox.take(self.shared.channels["test"], parsed)
        except StoreError:
            return False
        await self._idle()
        return True

    async def _idle(self) -> None:
        while len(self.shared.tasks):
            await asyncio.sleep(0.0002)

    async def keep_time(self) -> None:
        try:
            await self.shared.store.tick()
            await self.decisions.sweep(0.0)
        except StoreError:
            pass

    async def work(self, kind: Kind) -> bool:
        """Take one lane and run it; False when there was none."""
        try:
            lease = await self.shared.store.lease(self.shared.worker, [kind], pool=Platform.name, reads=READS[kind])
            if lease is not None:
                await self._runs[kind](lease)
                await self._idle()
        except StoreError:
            return True
        return lease is not None


class OnSqlite:
    """A store in memory, in whose time nothing passes by itself."""

    def __init__(self) -> None:
        self._nanoseconds = 1_800_000_000 * 10**9
        self.store = SqliteStore(":memory:")
        self.store._clock = Clock(self._tick, self._tick)

    def _tick(self) -> int:
        self._nanoseconds += 1000
        return self._nanoseconds

    def jump(self, seconds: float) -> None:
        self._nanoseconds += int(seconds * 10**9)

    def forget(self) -> None:
        """Nothing is left of it."""


class OnRedis:
    """A store on a Redis server, under keys of its own. A jump is made on top of the time that passes there."""

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix, self._redis = prefix, Redis.from_url(url)
        self.store = RedisStore(url, prefix=prefix, ack_seconds=5)

    def jump(self, seconds: float) -> None:
        self.store.offset_seconds += seconds
        bases = [Keys(self._prefix).base(partition) for partition in PARTITIONS]
        self._redis.eval(_LEASES_AGE, len(bases), *bases, int(seconds * 1_000_000))

    def forget(self) -> None:
        if made := list(self._redis.scan_iter(f"{self._prefix}:*", count=1000)):
            self._redis.delete(*made)
        self._redis.close()


Places = Callable[[], OnSqlite | OnRedis]
"""A new store at each call."""

_LEASES_AGE = """
for _, base in ipairs(KEYS) do
  for kind, way in pairs({ turn = 'turn', action = 'action', out = 'out/test' }) do
    for _, index in ipairs({ 'held', 'idle' }) do
      local name = base .. ':' .. index .. ':' .. way
      for _, lane in ipairs(redis.call('ZRANGE', name, 0, -1)) do
        local lapses = redis.call('HINCRBY', base .. ':lane:' .. kind .. ':' .. lane, 'until', -ARGV[1])
        redis.call('ZADD', name, lapses, lane)
      end
    end
  end
end
"""
"""Every lease is so many microseconds nearer to its end."""


class World:
    """Two processes, a platform, people, and what a witness knows of them."""

    def __init__(self, files: Path, place: OnSqlite | OnRedis) -> None:
        self.files = files
        self._place = place
        self.store: Store = place.store
        self.platform = Platform(self)
        self.behaviour: Behaviour = "works"
        self.hold: asyncio.Event | None = None
        self.bot = self._make_bot()
        self.workers = [Worker(self, "first"), Worker(self, "second")]
        self._count = 2
        self.running: list[tuple[Worker, asyncio.Task[bool]]] = []
        # The witness's book.
        self.violations: list[str] = []
        self.shown: list[Shown] = []
        self.things: list[Thing] = []
        self.asked_by: dict[str, str] = {}
        self.wanted: Counter[str] = Counter()
        """Invoice -> how often somebody asked for something about it."""
        self.tokens: dict[str, tuple[Thing, str]] = {}
        self.events: list[Event] = []
        self.yes_events: list[int] = []
        """Which of them were a bare yes of Ana's in her own chat."""
        self.heard: dict[tuple[str, str], list[float]] = {}
        self.effects: list[tuple[str, str, str]] = []
        self._unsure: list[Thing] = []

    # ── the machine room ──

    async def open(self) -> None:
        await self.store.open()

    async def close(self) -> None:
        for worker, task in self.running:
            worker.wire.left = 0
            worker.wire.go_on.set()
            task.cancel()
        await asyncio.gather(*(task for _, task in self.running), return_exceptions=True)
        await self.store.close()
        self._place.forget()

    async def now(self) -> float:
        return (await self.store.now()).timestamp()

    def jump(self, seconds: float) -> None:
        """Time passes, for deadlines and for leases."""
        self._place.jump(seconds)

    async def step(self, worker: int, kind: Kind) -> bool:
        """One piece of work by one process; whoever died is replaced."""
        found = await self.workers[worker].work(kind)
        self._bury()
        return found

    async def together(self, kind: Kind) -> None:
        """Both take work at once."""
        await asyncio.gather(*(worker.work(kind) for worker in self.workers))
        self._bury()

    async def pause(self, worker: int, kind: Kind, calls: int) -> None:
        """A process takes work and stands still at its so-manieth call to the store; another takes its place."""
        paused = self.workers[worker]
        paused.wire.pause_after = calls
        task = asyncio.create_task(paused.work(kind))
        stopped = asyncio.create_task(paused.wire.paused.wait())
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        paused.wire.pause_after = None
        if not task.done():
            self.running.append((paused, task))
            self._replace(paused)
        self._bury()

    async def hold_effect(self, worker: int) -> None:
        """The same, in the middle of an effect."""
        holding = self.workers[worker]
        self.hold = holding.wire.go_on
        task = asyncio.create_task(holding.work("action"))
        while not task.done() and self.hold is not None:
            await asyncio.sleep(0.0002)
        self.hold = None
        if not task.done():
            self.running.append((holding, task))
            self._replace(holding)
        self._bury()

    async def go_on(self) -> None:
        """Those that stood still go on, though others have taken their work over."""
        running, self.running = self.running, []
        for worker, task in running:
            worker.wire.go_on.set()
            await task
        self._sure()

    def _bury(self) -> None:
        self._sure()
        for worker in self.workers:
            if worker.wire.is_cut:
                self._replace(worker)
                self.jump(LEASE)

    def _replace(self, worker: Worker) -> None:
        self._count += 1
        self.workers[self.workers.index(worker)] = Worker(self, f"worker {self._count}")

    def _sure(self) -> None:
        """What was sent by a process that lived on is known to the gateway."""
        died = any(worker.wire.is_cut for worker in self.workers)
        for thing in self._unsure:
            if not died:
                thing.showings[-1] = (thing.showings[-1][0], True)
        self._unsure = []

    async def work_off(self) -> None:
        """Everything that can be done now is done."""
        kinds: tuple[Kind, ...] = ("turn", "action", "out")
        for number in range(200):
            await self.workers[0].keep_time()
            if not any([await self.step(number % 2, kind) for kind in kinds]):
                return
        self.violations.append("the work never ends")

    async def until_the_end(self) -> None:
        """Nothing is broken any more, and all windows pass."""
        self.platform.mood, self.behaviour = "up", "works"
        for worker in self.workers:
            worker.wire.left = None
        await self.go_on()
        for _ in range(6):
            await self.work_off()
            self.jump(LEASE + 600)
        await self.work_off()

    # ── the bot ──

    def _make_bot(self) -> ChannelAgent:
        @tool(confirm="Pay invoice {invoice_id}?")
        async def pay(invoice_id: str, ctx: ToolContext) -> str:
            """Pay an invoice."""
            return await self._effect("pay", invoice_id, ctx)

        @tool(confirm="Archive invoice {invoice_id}?", idempotent=True)
        async def archive(invoice_id: str, ctx: ToolContext) -> str:
            """Archive an invoice."""
            return await self._effect("archive", invoice_id, ctx)

        return ChannelAgent(Agent([pay, archive], provider=Model()))

    async def _effect(self, name: str, invoice: str, ctx: ToolContext) -> str:
        behaviour, self.behaviour = self.behaviour, "works"
        if self.hold is not None:
            gate, self.hold = self.hold, None
            self._happened(name, invoice, ctx.idempotency_key)
            await gate.wait()
            return f"{invoice} is settled."
        if behaviour == "fails":
            raise RuntimeError("secret words of an exception")
        if behaviour == "did nothing":
            raise NothingDone("it was closed")
        if behaviour in ("dies before", "dies after"):
            if behaviour == "dies after":
                self._happened(name, invoice, ctx.idempotency_key)
            for each in self.workers:
                each.wire.left = 0
            raise OutcomeUnknown("the process is gone")
        if behaviour != "unknown, not done":
            self._happened(name, invoice, ctx.idempotency_key)
        if behaviour != "works":
            raise OutcomeUnknown("no answer")
        return f"{invoice} is settled."

    # ── what people do ──

    async def says(self, person: str, place: str, text: str, *, ask: bool = False, **flags: Any) -> None:
        """A person writes something."""
        number = len(self.events)
        seen = [str(each) for each, message in enumerate(self.shown) if message.place == place]
        event = Message(
            event_ids=(f"m{number}",),
            after=seen[-1] if seen else None,
            address=_address(place),
            person=_person(person),
            message_id=f"own {number}",
            text=text,
            **flags,
        )
        if ask:
            self.asked_by |= dict.fromkeys(text.split()[1:], person)
            self.wanted.update(text.split()[1:])
        await self._do(event)

    async def asks(self, person: str, place: str, verb: str, invoices: Sequence[str]) -> None:
        """A person asks for something that has to be confirmed."""
        await self.says(person, place, " ".join([verb, *invoices]), ask=True)

    async def presses(self, person: str, place: str, token: str) -> None:
        """A person presses a button that was shown somewhere, perhaps long ago."""
        thing, intent = self.tokens[token]
        if intent == "confirm" and (person, place) == (thing.requester, thing.place):
            await self._said_yes(thing, TTL)
        await self._do(
            ButtonPress(
                event_ids=(f"p{len(self.events)}",), address=_address(place), person=_person(person), token=token
            )
        )

    async def types_code(self, person: str, place: str, thing: Thing, word: str) -> None:
        """A person writes a word and a code."""
        for other in self.things:
            same = (other.code, other.place, other.requester) == (thing.code, place, person)
            if same and word == "ok":
                await self._said_yes(other, TTL)
        await self.says(person, place, f"{word} {thing.code}")

    async def replies(self, person: str, number: int, word: str) -> None:
        """A person answers one message of the bot, in its chat."""
        message = self.shown[number]
        if word == "yes" and len(message.things) == 1 and message.things[0].requester == person:
            await self._said_yes(message.things[0], TTL)
        await self.says(person, message.place, word, reply_to=str(number))

    async def answers(self, person: str, place: str, word: str, **flags: Any) -> None:
        """A bare yes or no, and nothing else."""
        thing = self._asked_last(person, place)
        if word == "yes" and thing is not None and not flags:
            await self._said_yes(thing, ANSWER_WINDOW)
        if (person, place, word) == ("ana", "ana", "yes"):
            self.yes_events.append(len(self.events))
        await self.says(person, place, word, **flags)

    async def edits(self, person: str, place: str, text: str) -> None:
        """A person changes something they wrote."""
        number = len(self.events)
        await self._do(
            MessageEdited(
                event_ids=(f"e{number}",),
                address=_address(place),
                person=_person(person),
                message_id=f"own {number - 1}",
                text=text,
            )
        )

    async def opts(self, person: str, *, out: bool) -> None:
        """A person wants to hear nothing more, or to hear from the bot again."""
        ids = (f"o{len(self.events)}",)
        address, who = _address(person), _person(person)
        await self._do(OptOut(event_ids=ids, address=address, person=who, opted_in=not out, told=False))

    async def again(self, number: int) -> None:
        """The platform delivers an event once more: nobody does anything."""
        await self._deliver(self.events[number])

    async def tampers(self, thing: Thing) -> None:
        """Somebody who can write to the file, but has no key, has another invoice paid."""
        for key, record in await self.store.scan("action/"):
            stored = action_of(record.value)
            if stored.code == thing.code and stored.state in ("pending", "approved"):
                transaction = Transaction(partition=key.partition)
                transaction.puts[key.name] = Put(edited(record.value, args={"invoice_id": "INV-666"}))
                await self.store.commit(transaction)

    async def _do(self, event: Event) -> None:
        self.events.append(event)
        self.heard.setdefault((str(event.person), event.address.place), []).append(await self.now())
        await self._deliver(event)

    async def _deliver(self, event: Event) -> None:
        for _ in range(3):
            taken = await self.workers[len(self.events) % 2].take(event)
            self._bury()
            if taken:
                return

    # ── the witness ──

    async def saw(self, address: Address, part: Part) -> int:
        """The platform shows something."""
        at, text = await self.now(), str(part.arguments["text"])
        edits = part.arguments["edits"]
        if edits is not None:
            self.shown[int(str(edits))].edited = True
            return int(str(edits))
        tokens = [button.token for button in part.buttons]
        message = Shown(address.place, text, at, self._prompted(address.place, text, tokens, at), tokens)
        self.shown.append(message)
        if not message.things and text.startswith(_NOT_DONE):
            named = text.replace("\\", "")
            things = self._named(address.place, named)
            repeated = _TOO_LATE.match(text) and any(thing.ended for thing in things)
            for thing in [thing for thing in things if not thing.ended and not repeated][:1]:
                thing.ended = True
        return len(self.shown) - 1

    def _prompted(self, place: str, text: str, tokens: list[str], at: float) -> list[Thing]:
        things = []
        for verb, escaped, code in _PROMPT.findall(text) if tokens else ():
            name, invoice = verb.lower(), escaped.replace("\\", "")
            known = [
                thing for thing in self.things if (thing.place, thing.invoice, thing.code) == (place, invoice, code)
            ]
            thing = known[0] if known else Thing(place, name, invoice, code, self.asked_by[invoice])
            if not known:
                self.things.append(thing)
                if sum(each.invoice == invoice for each in self.things) > self.wanted[invoice]:
                    self.violations.append(f"{name} {invoice}: asked though nobody wanted it again")
            thing.showings.append((at, False))
            things.append(thing)
        self._unsure += things
        for number, token in enumerate(tokens if things else ()):
            self.tokens[token] = (things[number // 2], "cancel" if number % 2 else "confirm")
        return things

    def _named(self, place: str, text: str) -> list[Thing]:
        """Return what a message is about. A record that somebody has changed is told by its code alone."""
        by_code = text.startswith(_TAMPERED)
        here = [thing for thing in self.things if thing.place == place]
        return [
            thing
            for thing in here
            if re.search(rf"{thing.invoice}(?!\d)", text) or (by_code and text.endswith(f": {thing.code}"))
        ]

    async def _said_yes(self, thing: Thing, window: float) -> None:
        """It counts if it is in time; a window runs from the first showing that the gateway knows of."""
        known = [at for at, sure in thing.showings if sure]
        begun = known[0] if known and window == TTL else thing.showings[-1][0]
        if await self.now() <= begun + window + NEAR:
            thing.yes = True

    def _asked_last(self, person: str, place: str) -> Thing | None:
        """What a bare yes of this person would be the answer to."""
        here = [message for message in self.shown if message.place == place]
        if not here or len(here[-1].things) != 1 or place.startswith("#"):
            return None
        thing = here[-1].things[0]
        since = [at for at in self.heard.get((str(_person(person)), place), []) if at >= here[-1].at]
        return thing if thing.requester == person and not since else None

    def _happened(self, name: str, invoice: str, key: str) -> None:
        asked = [thing for thing in self.things if (thing.tool, thing.invoice) == (name, invoice)]
        if not asked:
            self.violations.append(f"{name} {invoice}: nobody was ever shown that")
        if asked and not any(thing.yes for thing in asked):
            self.violations.append(f"{name} {invoice}: nobody who may has said yes in time")
        if asked and all(thing.ended for thing in asked):
            self.violations.append(f"{name} {invoice}: people had been told that it will not happen")
        self.effects.append((name, invoice, key))
        times = self.effects.count((name, invoice, key))
        if times > (1 if name == "pay" else 3):
            self.violations.append(f"{name} {invoice}: happened {times} times on one yes")
        keys = {key for other, same, key in self.effects if (other, same) == (name, invoice)}
        if len(keys) > max(1, sum(thing.yes for thing in asked)):
            self.violations.append(f"{name} {invoice}: happened for more actions than were confirmed")

    async def check_the_end(self) -> None:
        """Nothing is open, nothing waits, and people know what became of everything they were shown."""
        for _, record in await self.store.scan("action/"):
            stored = action_of(record.value)
            if stored.state in ("pending", "approved", "running"):
                self.violations.append(f"{stored.preview} is {stored.state} for ever")
        stats = await self.store.stats()
        left = {name: getattr(stats, name) for name in ("pointed", "ready", "leased", "parked", "parts", "timers")}
        if any(left.values()):
            self.violations.append(f"work is left: {left}")
        letters = await self.store.dead()
        aside = " ".join(str(letter.part.body) for letter in letters if letter.part is not None).replace("\\", "")
        self.violations += [letter.reason for letter in letters if letter.reason.startswith("a decision")]
        for thing in self.things:
            told = [
                message
                for message in self.shown
                if not message.things and thing in self._named(thing.place, message.text.replace("\\", ""))
            ]
            changed = [message for message in self.shown if thing in message.things and message.edited]
            if not told and not changed and thing.invoice not in aside:
                self.violations.append(f"{thing.tool} {thing.invoice}: nobody was told what became of it")
        for action_id in {key for _, _, key in self.effects}:
            await self._check_chain(action_id)

    async def _check_chain(self, action_id: str) -> None:
        partitions = {self.store.partition(self.workers[0].shared.conversation(_address(place))) for place in PLACES}
        read = [await self.store.read(Key(partition, "audit")) for partition in sorted(partitions)]
        lines = [cast("dict[str, Json]", entry.value) for entries in read for entry in entries]
        mine = [line for line in lines if line["action"] == action_id]
        for before, line in itertools.pairwise(mine):
            if line["before"] != before["head"]:
                self.violations.append(f"the audit of {action_id} is broken at {line['what']}")
        if "decided" not in [line["what"] for line in mine]:
            self.violations.append(f"the audit of {action_id} knows no decision")


def _address(place: str) -> Address:
    return Address(channel="test", account="bot", place=place, group=place.startswith("#"))


def _person(name: str) -> Person:
    return Person(channel="test", account="bot", user_id=name, name=name.capitalize())


def _now() -> datetime:
    return datetime.now(UTC)
