"""A gateway of two processes in one loop, the people who use it, and what may go wrong with it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

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
from gateway import Agent, Approvers, ChannelAgent, Confirm, NothingDone, OutcomeUnknown, Standing, ToolContext, tool
from gateway.access import AllowList
from gateway.artifacts import ArtifactStore
from gateway.engine.concurrency import WorkerPool
from gateway.engine.context import EngineContext
from gateway.engine.decisions.lane import Decisions
from gateway.engine.delivery.sender import PartSender
from gateway.engine.event_bodies import event_body, replay_body
from gateway.engine.execution.executor import ActionExecutor
from gateway.engine.intake.inbox import Inbox
from gateway.engine.leases import prefetch
from gateway.engine.parts import schedule_reply
from gateway.engine.turns.runner import TurnRunner
from gateway.observe.teller import Teller
from gateway.pending.seal import Keyring
from gateway.providers.base import Request, Response, ToolCall
from gateway.store.base import Store
from gateway.store.errors import StoreError
from gateway.store.types import FOLDED_AFTER_SECONDS, Incoming, Key, Kind, Waiting
from gateway.testing.doubles import FaultyStore
from tests.machine.permissions import PERMITTED_COPIES, PERMITTED_SECONDS, PERMITTED_USES
from tests.machine.places import OnRedis, OnSqlite
from tests.machine.witness import (
    ANSWER_WINDOW,
    APPROVERS,
    ASKED_ONCE,
    SIGNERS,
    STANDIN,
    TTL,
    Effect,
    ShownButton,
    Thing,
    Witness,
)

__all__ = ["KEYRING", "LEASE", "PLACES", "Behaviour", "Mood", "World", "address", "conversation", "person"]

Behaviour = Literal[
    "works", "fails", "did nothing", "unknown, done", "unknown, not done", "dies before", "dies after", "outlasts"
]
"""What the next effect does."""
Mood = Literal["up", "down", "lost answer", "blocked"]
"""What the platform does with the next message; blocked is only ever a prompt."""

LEASE = 7.0
"""Seconds after which a lease of a process that died has lapsed."""

PLACES = ("ana", "bob", "#team", "cleo", "dan", "eve")
TOOLS = ("pay", "archive", "move", "send", "file", "sign", "share", "copy")
OUTLASTED_SECONDS = 0.2
"""A call of the one tool that runs in a thread takes no longer, unless it is to outlast that."""

_LONG_ENOUGH = 0.01
"""While both processes take work, an effect lasts so long that that of the other one could begin."""

KEYRING = Keyring([b"a key of more than 16 bytes"])


class Model:
    """``pay INV-1 INV-2`` and the like call the tools, also behind ``yes, but``; anything else is talk.

    ``copy INV-1 2 3`` ends with a folder, and perhaps a number of copies.
    """

    name = "test"

    async def complete(self, request: Request) -> Response:
        users = [number for number, message in enumerate(request.messages) if message.role == "user"]
        last = users[-1] if users else 0
        said = request.messages[last].content.rpartition(", but ")[2] if users else ""
        verb, *words = said.split() or [""]
        if verb not in TOOLS or any(message.role == "tool" for message in request.messages[last:]):
            return Response(content="I see.")
        invoices, more = _invoices(said), dict[str, Json]()
        if verb == "copy":
            more = {"folder": words[len(invoices)], "copies": _copies(said)}
        calls = [
            ToolCall(call_id=f"c{n}", name=verb, args={"invoice_id": each, **more}) for n, each in enumerate(invoices)
        ]
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
        return message.after is not None and int(message.after) >= int(str(receipt.message_id))

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        mood, self.mood = self.mood, "up"
        if mood == "down":
            raise Unavailable("503")
        if mood == "blocked" and part.buttons:
            self._world.does_not_change(part)
            raise Undeliverable("403")
        number = await self._world.saw(address, part, lost=mood == "lost answer")
        if mood == "lost answer":
            raise Ambiguous("no answer")
        return Receipt(message_id=str(number))


class Worker:
    """One process."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.wire = FaultyStore(world.store)
        self.context = EngineContext(
            store=cast("Store", self.wire),
            channels={"test": cast("Any", world.platform)},
            bot=world.bot,
            allowed=AllowList(["*"]),
            keyring=KEYRING,
            artifacts=ArtifactStore(world.files, [b"a key of more than 16 bytes"], public_url=None, now=_now),
            events=Teller(),
            worker=name,
        )
        self.decisions = Decisions(self.context)
        self.inbox = Inbox(self.context, self.decisions)
        turns, delivery = TurnRunner(self.context, self.decisions), PartSender(self.context)
        self.actions = actions = ActionExecutor(self.context)
        self.context.sending = {"test": WorkerPool(self.context.tasks, "out", 64, delivery.run)}
        self._runs: dict[Kind, Callable[[Any], Awaitable[Any]]] = {
            "turn": turns.run,
            "action": actions.run,
            "out": delivery.run,
        }

    async def take(self, event: Event) -> bool:
        """One delivery of the platform; False: it will deliver it again."""
        try:
            parsed = Parsed(events=(event,), response=WebhookResponse())
            await self.inbox.accept(self.context.channels["test"], parsed)
        except StoreError:
            return False
        await self.idle()
        return True

    async def idle(self) -> None:
        while len(self.context.tasks):
            await asyncio.sleep(0.0002)

    async def keep_time(self) -> None:
        try:
            await self.context.store.run_timers()
            await self.decisions.sweep(0.0)
        except StoreError:
            pass

    async def work(self, kind: Kind) -> bool:
        """Take one lane and run it; False when there was none."""
        try:
            lease = await self.context.store.lease(
                self.context.worker, [kind], pool=Platform.name, prefetch=prefetch(self.context, kind)
            )
            if lease is not None:
                self._world.filing = self
                await self._runs[kind](lease)
                await self.idle()
        except StoreError:
            return True
        return lease is not None


class World:
    """Two processes, a platform, people, and a witness of what they see."""

    def __init__(self, files: Path, place: OnSqlite | OnRedis) -> None:
        self.files = files
        self.place = place
        self.store: Store = place.store
        self.witness = Witness()
        self.platform = Platform(self)
        self.behaviour: Behaviour = "works"
        self.hold: asyncio.Event | None = None
        self.outlasting: list[tuple[Worker, str, threading.Event]] = []
        """The process, the invoice, and what the call in a thread waits for."""
        self.inside: Counter[str] = Counter()
        """Invoice -> calls that are at it now, under one lock."""
        self.folder = 1
        """Where an invoice is moved to, now."""
        self.bot = self._make_bot()
        self.workers = [Worker(self, "first"), Worker(self, "second")]
        self.filing = self.workers[0]
        """The process that took work last."""
        self._effect_seconds = 0.0
        self._count = 2
        self.running: list[tuple[Worker, asyncio.Task[bool]]] = []
        self.events: list[Event] = []
        self.yes_events: list[int] = []
        """Which of them were a bare yes of Ana's in her own chat."""

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
        """Time passes, for deadlines and for leases."""
        self.place.jump(seconds)

    async def step(self, worker: int, kind: Kind) -> bool:
        """One piece of work by one process; whoever died is replaced."""
        found = await self.workers[worker].work(kind)
        self._bury()
        return found

    async def together(self, kind: Kind) -> None:
        """Both take work at once."""
        self._effect_seconds = _LONG_ENOUGH
        await asyncio.gather(*(worker.work(kind) for worker in self.workers))
        self._effect_seconds = 0.0
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
            self.witness.is_sure(died=True)
            self.running.append((paused, task))
            self._replace(paused)
            self.witness.doubts += 1
        self._bury()

    async def hold_effect(self, worker: int) -> None:
        """The same, in the middle of an effect."""
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
        """The calls that have outlasted their time end."""
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
        """Those that stood still go on, though others have taken their work over."""
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
        """Both processes are replaced by those of a new release, whose tools are others."""
        self.witness.release += 1
        self.bot = self._make_bot()
        for worker in list(self.workers):
            self._replace(worker)

    async def keep_time_at_once(self) -> None:
        """Both processes look for what is due, and hand the same events over."""
        await asyncio.gather(*(worker.keep_time() for worker in self.workers))
        self._bury()

    async def work_off(self) -> None:
        """Everything that can be done now is done."""
        kinds: tuple[Kind, ...] = ("turn", "action", "out")
        for number in range(200):
            await self.workers[0].keep_time()
            if any([await self.step(number % 2, kind) for kind in kinds]):
                continue
            if not await self.store.pending_decisions():
                if not self.running and not self.outlasting:
                    self.witness.is_quiet()
                return
        self.witness.violations.append("the work never ends")

    async def until_the_end(self) -> None:
        """Nothing is broken any more, and all windows pass."""
        self.platform.mood, self.behaviour = "up", "works"
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

    def _make_bot(self) -> ChannelAgent:
        release = self.witness.release
        version = str(release)

        async def where(invoice_id: str) -> str:
            return f"Move invoice {invoice_id} to folder {self.folder}?"

        approvers = Approvers(people=_people(APPROVERS), need=2)
        all_three = Approvers(people=_people(APPROVERS), need=2, requester=True)
        standing = Standing(
            max_seconds=PERMITTED_SECONDS,
            max_uses=PERMITTED_USES,
            same=["folder"],
            free=["invoice_id"],
            most={"copies": PERMITTED_COPIES},
        )

        @tool(confirm="Pay invoice {invoice_id}?", version=version)
        async def pay(invoice_id: str, ctx: ToolContext) -> str:
            """Pay an invoice."""
            return await self._effect("pay", invoice_id, ctx, release)

        @tool(confirm="Archive invoice {invoice_id}?", idempotent=True, version=version)
        async def archive(invoice_id: str, ctx: ToolContext) -> str:
            """Archive an invoice."""
            return await self._effect("archive", invoice_id, ctx, release)

        @tool(confirm=Confirm(where, after="resume"), version=version)
        async def move(invoice_id: str, ctx: ToolContext) -> str:
            """Move an invoice to where it belongs now."""
            return await self._effect("move", invoice_id, ctx, release)

        @tool(confirm=Confirm("Send invoice {invoice_id}?", approvers=approvers, ttl_seconds=TTL), version=version)
        async def send(invoice_id: str, ctx: ToolContext) -> str:
            """Send an invoice."""
            return await self._effect("send", invoice_id, ctx, release)

        @tool(
            confirm="File invoice {invoice_id}?",
            lock="{invoice_id}",
            timeout_seconds=OUTLASTED_SECONDS,
            version=version,
        )
        def file(invoice_id: str, ctx: ToolContext) -> str:
            """File an invoice."""
            return self._filed(invoice_id, ctx, release)

        @tool(
            confirm=Confirm("Sign invoice {invoice_id}?", approvers=self._signers(), ttl_seconds=TTL), version=version
        )
        async def sign(invoice_id: str, ctx: ToolContext) -> str:
            """Sign an invoice."""
            return await self._effect("sign", invoice_id, ctx, release)

        @tool(confirm=Confirm("Share invoice {invoice_id}?", approvers=all_three, ttl_seconds=TTL), version=version)
        async def share(invoice_id: str, ctx: ToolContext) -> str:
            """Share an invoice."""
            return await self._effect("share", invoice_id, ctx, release)

        @tool(confirm=Confirm("Copy invoice {invoice_id} to folder {folder}?", standing=standing), version=version)
        async def copy(invoice_id: str, folder: str, ctx: ToolContext, copies: int = 1) -> str:
            """Copy an invoice to a folder."""
            return await self._effect("copy", invoice_id, ctx, release, folder=folder, copies=copies)

        return ChannelAgent(Agent([pay, archive, move, send, file, sign, share, copy], provider=Model()))

    def _signers(self) -> Approvers:
        return Approvers(people=_people(SIGNERS - self.witness.removed), need=2, standin=_people({STANDIN}))

    def removes(self, name: str) -> None:
        """One of the signers has the right no longer."""
        self.witness.removed = frozenset({name})
        signing = self.bot.tool("sign")
        if signing is not None and signing.confirm is not None:
            signing.confirm.approvers = self._signers()

    def _filed(self, invoice: str, ctx: ToolContext, release: int) -> str:
        """Run in a thread."""
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

    async def _effect(
        self, name: str, invoice: str, ctx: ToolContext, release: int, *, folder: str = "", copies: int = 1
    ) -> str:
        thing = self.witness.begins(name, invoice)
        folder, key = str(self.folder) if name == "move" else folder, ctx.idempotency_key
        effect = Effect(tool=name, invoice=invoice, folder=folder, key=key, release=release, copies=copies)
        try:
            await asyncio.sleep(self._effect_seconds)
            return await self._done(effect)
        finally:
            self.witness.ends(thing)

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

    # ── what people do ──

    async def says(self, name: str, place: str, text: str, *, ask: bool = False, before: int = 0, **flags: Any) -> None:
        """A person writes something; `before` the so many newest messages of the bot were there."""
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
        if ask:
            self.witness.wants(name, place, _invoices(text), await self.now(), copies=_copies(text))
        await self._do(event, name)

    async def asks(self, name: str, place: str, verb: str, invoices: Sequence[str]) -> None:
        """A person asks for something that has to be confirmed.

        One tool with approvers is asked in groups only, where all of them are.
        """
        if verb == "send" and not place.startswith("#"):
            verb = "pay"
        await self.says(name, place, " ".join([verb, *invoices]), ask=True)

    async def presses(self, name: str, place: str, token: str) -> None:
        """A person presses a button that was shown somewhere, perhaps long ago."""
        if self.witness.token_place[token] == place:
            await self._means(name, place, token)
        press = ButtonPress(
            event_ids=(f"p{len(self.events)}",), address=address(place), person=person(name), token=token
        )
        await self._do(press, name)

    async def _means(self, name: str, place: str, token: str) -> None:
        now, witness = await self.now(), self.witness
        if token in witness.for_all:
            message, intent = witness.for_all[token]
            counts = [witness.says_yes(each, name, place, TTL, now) for each in message.things if intent == "confirm"]
            if counts and all(counts):
                witness.selects(message.things)
            return
        thing, intent = witness.tokens[token]
        match intent:
            case "confirm":
                witness.says_yes(thing, name, place, TTL, now)
            case "cancel":
                witness.says_no(thing, name, place, now)
            case "standing" if witness.says_yes(thing, name, place, TTL, now):
                witness.permissions.give((name, place, thing.folder), thing.release, now)

    async def types_code(self, name: str, place: str, thing: Thing, word: str, *, standing: bool = False) -> None:
        """A person writes a word and a code, perhaps the one that also gives the permission."""
        now, code = await self.now(), thing.standing_code if standing else thing.codes.get(place, thing.code)
        for other in self.witness.things:
            if code and code in (other.codes.get(place), other.standing_code):
                if word == "no":
                    self.witness.says_no(other, name, place, now)
                elif self.witness.says_yes(other, name, place, TTL, now) and code == other.standing_code:
                    self.witness.permissions.give((name, place, other.folder), other.release, now)
        await self.says(name, place, f"{word} {code}")

    async def replies(self, name: str, number: int, word: str) -> None:
        """A person answers one message of the bot, in its chat."""
        message = self.witness.shown[number]
        if word == "yes" and len(message.things) == 1:
            self.witness.says_yes(message.things[0], name, message.place, TTL, await self.now())
        await self.says(name, message.place, word, reply_to=str(number))

    async def answers(self, name: str, place: str, word: str, **flags: Any) -> None:
        """A bare yes or no, and nothing else."""
        thing = self.witness.asked_last(name, place)
        if word == "yes" and thing is not None and not flags:
            self.witness.says_yes(thing, name, place, ANSWER_WINDOW, await self.now())
        if (name, place, word) == ("ana", "ana", "yes"):
            self.yes_events.append(len(self.events))
        await self.says(name, place, word, **flags)

    async def selects(self, name: str, place: str, words: str, numbers: Sequence[int]) -> None:
        """A person confirms these items of the plan that was shown last, by their numbers or in other words."""
        things = self.witness.plan_asked_last(name, place)
        named = [things[number - 1] for number in numbers if number <= len(things)]
        now = await self.now()
        counts = [self.witness.says_yes(each, name, place, ANSWER_WINDOW, now) for each in named]
        if counts and all(counts):
            self.witness.selects(named)
        await self.says(name, place, words)

    async def edits(self, name: str, place: str, text: str) -> None:
        """A person changes something they wrote."""
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
        """A person wants to hear nothing more, or to hear from the bot again."""
        ids = (f"o{len(self.events)}",)
        event = OptOut(event_ids=ids, address=address(name), person=person(name), opted_in=not out, told=False)
        await self._do(event, name)

    async def again(self, number: int) -> None:
        """The platform delivers an event once more: nobody does anything."""
        await self._deliver(self.events[number])

    async def replay(self, number: int, *, decides: bool) -> None:
        """An operator replays an event as if it had been put aside: it may ask, and answers nothing."""
        context, event = self.workers[0].context, self.events[number]
        verb = event.text.rpartition(", but ")[2].partition(" ")[0] if isinstance(event, Message) else ""
        if verb in ASKED_ONCE:
            return
        if isinstance(event, Message) and verb in TOOLS:
            self.witness.wanted.update(_invoices(event.text))
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
        """The author's code says something of its own accord."""
        timer = schedule_reply(KEYRING, conversation(place), address(place), Reply(text=text), await self.store.now())
        await self.store.accept([timer.incoming])

    async def _do(self, event: Event, name: str) -> None:
        self.events.append(event)
        self.witness.heard.setdefault((name, event.address.place), []).append(await self.now())
        await self._deliver(event)

    async def _deliver(self, event: Event) -> None:
        for _ in range(3):
            taken = await self.workers[len(self.events) % 2].take(event)
            self._bury()
            if taken:
                return

    async def saw(self, to: Address, part: Part, *, lost: bool) -> int:
        """The platform shows something; the answer to who sent it may be `lost`."""
        edits = part.arguments["edits"]
        buttons = [ShownButton(button.token, button.style, button.label) for button in part.buttons]
        number = int(str(edits)) if edits is not None else None
        number = self.witness.saw(to.place, str(part.arguments["text"]), buttons, number, await self.now(), lost=lost)
        self.witness.doubts += lost
        return number

    def does_not_change(self, part: Part) -> None:
        """The platform refuses this part; a message that it would have changed stays as it is."""
        edits = part.arguments["edits"]
        if edits is not None:
            self.witness.shown[int(str(edits))].known = False

    # ── the end ──

    async def check_the_end(self) -> None:
        """Nothing is open, nothing waits, and people know what became of everything they were shown."""
        violations, context = self.witness.violations, self.workers[0].context
        for place in PLACES:
            actions = await context.actions(conversation(place))
            violations += [
                f"{action.preview} is {action.state} for ever"
                for action in actions.by_id.values()
                if not action.settled
            ]
        self.jump(FOLDED_AFTER_SECONDS)  # what nobody wrote after is taken in
        await self.work_off()
        stats = await self.store.stats()
        left = {name: getattr(stats, name) for name in ("pointed", "ready", "leased", "parked", "parts", "timers")}
        if any(left.values()):
            violations.append(f"work is left: {left}")
        letters = await self.store.dead_letters()
        aside = " ".join(str(letter.part.body) for letter in letters if letter.part is not None).replace("\\", "")
        decisions = [letter.reason for letter in letters if letter.reason.startswith("a decision")]
        violations += [reason for reason in decisions if not reason.endswith("made by somebody without the key")]
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
    """Return the key of the conversation there."""
    return f"agent/{address(place)}"


def person(name: str) -> Person:
    return Person(channel="test", account="bot", user_id=name, name=name.capitalize())


def _invoices(text: str) -> list[str]:
    return [word for word in text.split() if word.startswith("INV-")]


def _copies(text: str) -> int:
    """Return the number behind the folder, or 1."""
    numbers = [word for word in text.split() if word.isdecimal()]
    return int(numbers[1]) if len(numbers) > 1 else 1


def _people(names: Iterable[str]) -> list[str]:
    return [str(person(name)) for name in sorted(names)]


def _now() -> datetime:
    return datetime.now(UTC)
