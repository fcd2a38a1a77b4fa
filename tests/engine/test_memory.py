"""The memory of a bot: each conversation has its own history, read with the lease within the bot's limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels import Message, Parsed, WebhookResponse
from gateway import Agent, AgentConfig, ChannelAgent, ConversationMemory, EntityMemory, tool
from gateway.config.limits import Limits, Retention, Share
from gateway.engine.leases import prefetch
from gateway.observe.events import MemoryTrim, SessionLoad, SessionSave
from gateway.observe.runs import run_id_of
from gateway.observe.trace import AgentTrace
from gateway.pending.lines import seal_lines
from gateway.privacy.expiry import Expiry
from gateway.providers.base import ModelMessage, Request, Response
from gateway.providers.base import ToolCall as Call
from gateway.store.base import Store
from gateway.store.errors import StoreUnavailable
from gateway.store.transaction import Transaction
from gateway.store.types import FOLDED_AFTER_SECONDS, Kind
from gateway.stored import keys
from gateway.testing import ScriptedProvider, ToolCall
from gateway.testing.doubles import FaultyStore
from tests.agent.test_compress_context import plainly
from tests.engine.bots import Model, Whole
from tests.engine.rig import Platform, Rig, Worker, message, rig, until
from tests.fakes import openai
from tests.providers.checkers import refusals

PLACE = "agent/test:bot:ana"


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


def bot(model: Any, memory: ConversationMemory | None) -> ChannelAgent:
    return ChannelAgent(Agent([look], provider=model, memory=memory))


@asynccontextmanager
async def chatting(files: Path, memory: ConversationMemory | None) -> AsyncIterator[tuple[Rig, Model]]:
    model = Model()
    async with rig(bot(model, memory), files) as chat:
        yield chat, model


async def asks(chat: Rig, *texts: str, who: str = "ana") -> None:
    for text in texts:
        await chat.handles(who, text)


def read(model: Any) -> list[str]:
    return [each.content for each in model.requests[-1].messages]


def trims(chat: Rig) -> list[tuple[int, int, str]]:
    found = chat.worker.told.of_kind(MemoryTrim)
    return [(each.messages_removed, each.messages_remaining, each.reason) for each in found]


@pytest.mark.ledger("MEM-07", "MEM-12", "CFG-20")
async def test_a_turn_reads_the_history_within_the_limits(tmp_path: Path) -> None:
    async with chatting(tmp_path, ConversationMemory(4)) as (chat, model):
        await asks(chat, "a", "b", "c", "d")
        assert read(model) == ["b", "You said: b", "c", "You said: c", "d"]
        assert trims(chat) == [(2, 4, "enforce_limits")] * 2
        told = chat.worker.told
        assert [each.message_count for each in told.of_kind(SessionLoad)] == [0, 2, 4, 4]
        assert [(each.session_id, each.message_count) for each in told.of_kind(SessionSave)] == [(PLACE, 2)] * 4


async def test_the_stored_trace_of_a_turn_has_the_trim(tmp_path: Path) -> None:
    async with chatting(tmp_path, ConversationMemory(2)) as (chat, _):
        await asks(chat, "a")
        said = message("ana", "b")
        await chat.take(said)
        await chat.work()
        key = keys.key(chat.store, PLACE, keys.trace, run_id_of(PLACE, said.event_ids[0]))
        stored: Any = (await chat.store.get([key]))[key].value
        (step,) = AgentTrace.from_dict(stored).filter(type="memory_trim")
        assert step.summary == "2 removed, 2 remain: enforce_limits"


@pytest.mark.ledger("MEM-03")
async def test_tokens_bound_the_history_of_a_chat(tmp_path: Path) -> None:
    async with chatting(tmp_path, ConversationMemory(20, 100)) as (chat, model):
        await asks(chat, "x" * 300, "y" * 100, "and?")
        assert read(model) == ["y" * 100, "You said: " + "y" * 100, "and?"]


@pytest.mark.ledger("MEM-04", "MEM-06")
async def test_a_chat_begins_with_no_result_of_a_lost_call(tmp_path: Path) -> None:
    model = ScriptedProvider([ToolCall("look", {}), "1", "2", "3"])
    async with rig(bot(model, ConversationMemory(4)), tmp_path) as chat:
        await asks(chat, "a", "b", "c")
        assert trims(chat)[:2] == [(2, 4, "enforce_limits"), (1, 3, "tool_pair_boundary")]
        assert [each.role for each in model.requests[-1].messages] == ["assistant", "user", "assistant", "user"]
    model = ScriptedProvider([ToolCall("look", {}), "1", "2"])
    async with rig(bot(model, ConversationMemory(4)), tmp_path) as chat:
        await asks(chat, "a", "b")
        assert [each.role for each in model.requests[-1].messages] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.ledger("MEM-01")
async def test_bots_and_people_that_share_a_memory_share_no_words(tmp_path: Path) -> None:
    memory = ConversationMemory()
    memory.add(ModelMessage(role="user", content="alone"))
    memory.summary = "of a run alone"
    async with chatting(tmp_path / "1", memory) as (chat, model), chatting(tmp_path / "2", memory) as (other, second):
        await asks(chat, "a secret of Ana")
        await asks(chat, "hello", who="bo")
        await asks(other, "hello")
        assert (read(model), read(second)) == (["hello"], ["hello"])
        assert "alone" not in model.requests[-1].system
        assert [each.content for each in memory.get_history()] == ["alone"]


@pytest.mark.ledger("MEM-03")
async def test_edits_and_notes_push_no_words_out_of_a_memory(tmp_path: Path) -> None:
    async with chatting(tmp_path, ConversationMemory(4, 200)) as (chat, model):
        await asks(chat, "my name is Zora", "hello")
        for number in range(40):
            await chat.edits("ana", f"m{number}", f"text {number}")
            await chat.edits("ana", f"m{number}", "")
            if number % 10 == 9:
                await chat.advance(FOLDED_AFTER_SECONDS + 1)
                await chat.work()
        await asks(chat, "who am I?")
        said = [each.content for each in model.requests[-1].messages if each.role == "user"]
        assert said == ["my name is Zora", "hello", "who am I?"]
        for number in range(4):
            await chat.edits("ana", f"m{number}", "x" * 900)
            await asks(chat, f"{number}")
        said = [each.content for each in model.requests[-1].messages if each.role == "user"]
        assert said == ["1", "2", "3"]


@pytest.mark.ledger("MEM-07")
async def test_another_process_goes_on_with_the_conversation(tmp_path: Path) -> None:
    async with chatting(tmp_path, ConversationMemory()) as (chat, model):
        await asks(chat, "my name is Alice")
        await chat.says("ana", "what's my name?")
        await chat.another().turn()
        assert read(model) == ["my name is Alice", "You said: my name is Alice", "what's my name?"]


async def test_new_begins_an_empty_memory(tmp_path: Path) -> None:
    async with chatting(tmp_path, ConversationMemory(2)) as (chat, model):
        await asks(chat, "a", "b", "/new", "c")
        assert read(model) == ["c"]
        assert len(trims(chat)) == 1, "a reset is no trim"


@pytest.mark.parametrize(("memory", "lines"), [(None, 80), (ConversationMemory(4), 28), (ConversationMemory(200), 420)])
async def test_lease_reads_only_the_lines_the_memory_needs(
    tmp_path: Path, memory: ConversationMemory | None, lines: int
) -> None:
    async with chatting(tmp_path, memory) as (chat, _):
        await fill(chat, 1_000)
        await chat.says("ana", "hello")
        assert len((await chat.worker.lease("turn")).lines) == lines


async def fill(chat: Rig, messages: int) -> None:
    """Fill a conversation with so many messages."""
    line: Any = {"role": "user", "content": "word"}
    answer: Any = {"role": "assistant", "content": "answer"}
    now, keyring = await chat.store.now(), chat.worker.context.keyring
    lines = seal_lines(keyring, PLACE, [line, answer] * (messages // 2), now=now)
    for first in range(0, messages, 1_000):
        transaction = Transaction(partition=chat.store.partition(PLACE))
        transaction.appends = [(f"transcript/{PLACE}", each) for each in lines[first : first + 1_000]]
        await chat.store.commit(transaction)


@pytest.mark.ledger("MEM-03")
async def test_a_turn_after_ten_thousand_messages_costs_as_before(tmp_path: Path) -> None:
    async with chatting(tmp_path, ConversationMemory(20)) as (chat, model):
        await asks(chat, *(f"a{number}" for number in range(30)))
        before = await asked(chat)
        await fill(chat, 10_000)
        await asks(chat, *(f"b{number}" for number in range(10)))
        assert await asked(chat) == before
        assert len(model.requests[-1].messages) == 21


async def asked(chat: Rig) -> tuple[dict[str, int], int]:
    """Return the store calls of one more turn, and the number of the lines read."""
    wire: FaultyStore = chat.wire
    calls = dict(wire.calls)
    await chat.says("ana", "one more")
    lease = await chat.worker.lease("turn")
    await chat.worker.turn_of(lease)
    made = {name: number - calls.get(name, 0) for name, number in wire.calls.items()}
    await chat.work()
    return {name: number for name, number in made.items() if number}, len(lease.lines)


@pytest.mark.ledger("MEM-02", "MEM-06")
async def test_dead_turn_leaves_no_partial_history(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedProvider([ToolCall("look", {}), hold, "Never said.", "It is seen.", "Bye."])
    async with rig(bot(model, ConversationMemory()), tmp_path) as chat:
        await chat.says("ana", "look")
        other, taken, dying = await chat.taken_over()
        assert (taken.died, list(taken.lines)) == (True, []), "nothing of the turn is in the memory yet"
        hold.set()
        assert await dying is None
        assert await other.turn_of(taken) is not None
        await asks(chat, "bye")
        roles = [each.role for each in model.requests[-1].messages]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.ledger("MEM-03")
@pytest.mark.parametrize("memory", [None, ConversationMemory(4)])
async def test_row_of_turns_with_notes_alone_pushes_no_words_out(
    tmp_path: Path, memory: ConversationMemory | None
) -> None:
    async with chatting(tmp_path, memory) as (chat, model):
        await asks(chat, "my name is Zora")
        for number in range(90):
            await chat.edits("ana", f"m{number}", f"text {number}")
            await asks(chat, "/usage")
        await asks(chat, "who am I?")
        said = [each.content for each in model.requests[-1].messages if each.role == "user"]
        assert said == ["my name is Zora", "who am I?"]
        assert "text 89" in str(model.requests[-1].messages)


async def test_only_a_quarter_of_the_turns_fill_memories_at_once(tmp_path: Path) -> None:
    hold = asyncio.Event()
    reader = ScriptedProvider([hold, *['{"entities": []}'] * 8])
    agent = Agent(provider=Model(), config=AgentConfig(entity_memory=EntityMemory(provider=reader)))
    async with rig(ChannelAgent(agent), tmp_path, limits=Limits(turns=Share(None, None, 4))) as chat:
        people = [f"person {number}" for number in range(8)]
        for person in people:
            await chat.says(person, "hello")
        for _ in people:
            await chat.worker.turn()
        lanes = [await chat.worker.lease("memory", lease_seconds=60.0) for _ in people]
        filling = [asyncio.create_task(chat.worker.memory.run(lane)) for lane in lanes]
        await until(lambda: reader.requests)
        await chat.says("person 0", "hello again")
        await chat.worker.turn()
        assert len(reader.requests) == 1
        hold.set()
        await asyncio.gather(*filling)
        assert len(reader.requests) == 8


DAY = 86_400.0
KEPT = Retention(transcript=3, visible=3)
MARK = re.compile(r"\bm\d+\b")
WAIT_SECONDS = 120.0
"""Longer than the wait before another try."""


@tool(confirm="Delete it?", idempotent=True)
async def delete() -> str:
    """Delete it."""
    return "It is deleted."


class Vendors(Whole):
    """A model calling the tool named in the last words; both vendors' checks run on each transcript."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """The callback run during the next call."""

    async def complete(self, request: Request) -> Response:
        check(request)
        self.requests.append(request)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return self.answer(request)

    def answer(self, request: Request) -> Response:
        last, number = request.messages[-1], len(self.requests)
        if last.role != "user":
            return Response(content="It is done.")
        names = ["look"] * last.content.count(" look") + ["delete"] * last.content.count(" delete")
        calls = [Call(call_id=f"c{number}.{at}", name=name) for at, name in enumerate(names)]
        return Response(tool_calls=tuple(calls), finish="tools") if calls else Response(content="Yes?")


class Summarizer(Vendors):
    """A model summing up messages by their marks."""

    def answer(self, request: Request) -> Response:
        return Response(content=" ".join(["So far:", *dict.fromkeys(marks(request))]))


def check(request: Request) -> None:
    assert openai.refusal_of({"model": "m", "messages": plainly(request.messages)}) is None
    assert refusals(request) == {}


def marks(request: Request) -> list[str]:
    read = [request.system, *(each.content for each in request.messages)]
    return MARK.findall(" ".join(read))


class History:
    """A conversation, and the processes working on the conversation in turn."""

    def __init__(self, chat: Rig, make: Callable[[], ChannelAgent], model: Vendors, summarizer: Vendors) -> None:
        self.chat, self.make, self.model, self.summarizer = chat, make, model, summarizer
        self.said: list[str] = []
        """The marks of the texts to be known."""
        self.number = self.reset = 0
        """The number of the last words, and of the last before a new conversation."""

    async def step(self, what: tuple[Any, ...], died_after: int | None, lost: bool) -> None:
        do = self._step(*what)
        self._wire.calls_left, self._wire.last_answer_lost = died_after, lost
        try:
            await do()
        except StoreUnavailable:
            assert self._wire.is_cut
        if self._wire.is_cut:  # the platform sends again, and another process takes over
            await self._restart()
            await do()
        self._wire.calls_left = None

    async def ends(self) -> None:
        """Check that the conversation goes on undisturbed."""
        await self._settled()
        await self._saying("and?")()
        await self._settled()
        assert self.model.requests[-1].messages[-1].content == f"m{self.number} and?"
        known = marks(self.model.requests[-1])
        assert set(self.said) <= set(known)
        assert all(int(mark[1:]) > self.reset for mark in known), "a new conversation begins with nothing"
        stats = await self.chat.store.stats()
        assert (stats.waiting, stats.dead) == (0, 0)

    async def _settled(self) -> None:
        """Let the waits before another try pass."""
        for _ in range(3):
            await self._work()
            await self.chat.advance(WAIT_SECONDS)

    @property
    def _wire(self) -> FaultyStore:
        return self.chat.wire

    def _step(self, kind: str, *values: Any) -> Callable[[], Awaitable[None]]:
        match kind:
            case "says":
                return self._saying(*values)
            case "answers":
                return self._taking(message("ana", *values))
            case "days":
                return self._days(*values)
        assert kind == "new"
        return self._reset()

    def _saying(self, text: str) -> Callable[[], Awaitable[None]]:
        self.number += 1
        self.said.append(f"m{self.number}")
        return self._taking(message("ana", f"m{self.number} {text}"))

    def _reset(self) -> Callable[[], Awaitable[None]]:
        self.said.clear()
        self.reset = self.number
        return self._taking(message("ana", "/new"))

    def _taking(self, said: Message) -> Callable[[], Awaitable[None]]:
        async def take() -> None:
            parsed = Parsed(events=(said,), response=WebhookResponse())
            await self.chat.worker.engine.inbox.accept(self.chat.platform, parsed)
            while (await self.chat.store.stats()).pointed and not self._wire.is_cut:
                await asyncio.sleep(0)
            await self._work()

        return take

    async def _work(self) -> None:
        """Do all possible work now, until the process dies. The lease of a dead process has lapsed."""
        worker = self.chat.worker
        runs: dict[Kind, Any] = {
            "turn": worker.turn_of,
            "memory": worker.memory.run,
            "action": worker.engine._actions.run,
            "out": worker.delivery.run,
        }
        found = True
        while found and not self._wire.is_cut:
            found = False
            for kind, run in runs.items():
                lease = await self._wire.lease(
                    "w", [kind], pool=Platform.name, lease_seconds=0.0, prefetch=prefetch(worker.context, kind)
                )
                if lease is not None:
                    found = True
                    await run(lease)
        await worker.context.tasks.ended()

    def _days(self, days: float, during: str) -> Callable[[], Awaitable[None]]:
        self.said.clear()
        passed = False

        async def sweep() -> None:
            await Expiry(cast("Store", self._wire), KEPT).run(await self.chat.store.now())

        async def passes() -> None:
            nonlocal passed
            if not passed:
                passed = True
                await self.chat.advance(days * DAY)
            await self._work()
            match during:
                case "turn":
                    self.model.meanwhile = sweep
                case "summary":
                    self.summarizer.meanwhile = sweep
                case _:
                    await sweep()

        return passes

    async def _restart(self) -> None:
        self.model.meanwhile = self.summarizer.meanwhile = None
        await self.chat.worker.engine.stop(0)
        wire = FaultyStore(self.chat.store)
        self.chat.wire, self.chat.bot = wire, self.make()
        self.chat.worker = Worker(self.chat.bot, wire, {Platform.name: self.chat.platform}, self.chat.files)
        await self._settled()


TEXTS = st.sampled_from(["hello", "look", "look look look", "delete", "look delete", "x" * 300])
STEP = st.one_of(
    st.tuples(st.just("says"), TEXTS),
    st.tuples(st.just("says"), TEXTS),
    st.tuples(st.just("answers"), st.sampled_from(["yes", "no", "yes"])),
    st.tuples(st.just("days"), st.sampled_from([0.5, 1.5, 4.0]), st.sampled_from(["now", "turn", "summary"])),
    st.tuples(st.just("new")),
)
Steps = list[tuple[tuple[Any, ...], int | None, bool]]
STEPS = st.lists(st.tuples(STEP, st.none() | st.integers(1, 40), st.booleans()), min_size=3, max_size=14)


@pytest.mark.usefixtures("nobody_waits_long")
@pytest.mark.ledger("MEM-02", "MEM-04")
@pytest.mark.parametrize("histories", [12, pytest.param(200, marks=pytest.mark.nightly)])
def test_any_history_is_taken_by_both_vendors(tmp_path: Path, histories: int) -> None:
    @settings(max_examples=histories)
    @given(STEPS, st.integers(1, 8), st.none() | st.integers(10, 200))
    def any_history(steps: Steps, most: int, tokens: int | None) -> None:
        play(tmp_path, steps, most, tokens)

    any_history()


def play(tmp_path: Path, steps: Steps, most: int, tokens: int | None) -> None:
    async def live() -> None:
        model, summarizer = Vendors(), Summarizer()

        def bot() -> ChannelAgent:
            memory = ConversationMemory(most, tokens, summarize_on_trim=True, summarize_provider=summarizer)
            return ChannelAgent(Agent([look, delete], provider=model, memory=memory))

        async with rig(bot(), tmp_path) as chat:
            history = History(chat, bot, model, summarizer)
            for what, died_after, lost in steps:
                await history.step(what, died_after, lost)
            await history.ends()

    asyncio.run(live())
