"""Random histories of a conversation whose window, summary and log are trimmed, written and cut while processes die.

Whatever is interleaved, each call to the model has a transcript that both vendors take, and no words are lost that
have not been kept for too long.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channels import Message, Parsed, WebhookResponse
from gateway import Agent, ChannelAgent, ConversationMemory, tool
from gateway.engine.expiry import Expiry
from gateway.engine.leases import prefetch
from gateway.providers.anthropic.request import Conversation
from gateway.providers.base import Request, Response, ToolCall
from gateway.providers.openai.request import chat_messages
from gateway.retention import Retention
from gateway.store.base import Store
from gateway.store.errors import StoreUnavailable
from gateway.store.types import Kind
from gateway.testing.faulty_store import FaultyStore
from tests.agent.test_compress_context import plainly
from tests.engine.rig import Platform, Rig, Worker, message, rig
from tests.fakes import anthropic, openai

pytestmark = pytest.mark.usefixtures("nobody_waits_long")
DAY = 86_400.0
KEPT = Retention(transcript=3, visible=3)
MARK = re.compile(r"\bm\d+\b")
WAIT_SECONDS = 120.0
"""Longer than the wait before another try."""


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


@tool(confirm="Delete it?", idempotent=True)
async def delete() -> str:
    """Delete it."""
    return "It is deleted."


class Vendors:
    """A model that calls what the last words name, in whose place both vendors check each transcript."""

    name = "test"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """What happens while the next call is under way."""

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
        calls = [ToolCall(call_id=f"c{number}.{at}", name=name) for at, name in enumerate(names)]
        return Response(tool_calls=tuple(calls), finish="tools") if calls else Response(content="Yes?")

    async def stream(self, request: Request) -> Any:
        yield await self.complete(request)

    async def close(self) -> None:
        """Nothing is held."""


class Summarizer(Vendors):
    """A model that sums up messages by their marks."""

    def answer(self, request: Request) -> Response:
        return Response(content=" ".join(["So far:", *dict.fromkeys(marks(request))]))


def check(request: Request) -> None:
    assert openai.refusal_of({"model": "m", "messages": plainly(request.messages)}) is None
    assert openai.refusal_of({"model": "m", "messages": chat_messages(request, "m")}) is None
    turns = Conversation(request, "m").turns
    assert anthropic.refusal_of({"model": "m", "max_tokens": 10, "messages": turns}) is None


def marks(request: Request) -> list[str]:
    read = [request.system, *(each.content for each in request.messages)]
    return MARK.findall(" ".join(read))


class History:
    """One conversation, and the processes that work it one after the other."""

    def __init__(self, chat: Rig, make: Callable[[], ChannelAgent], model: Vendors, summarizer: Vendors) -> None:
        self.chat, self.make, self.model, self.summarizer = chat, make, model, summarizer
        self.said: list[str] = []
        """The marks of what must be known."""
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
        """The conversation goes on as if nothing had been."""
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
        """Do all that can be done now, until the process dies. The lease of a dead one has lapsed."""
        worker = self.chat.worker
        runs: dict[Kind, Any] = {
            "turn": worker.turn_of,
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
STEPS = st.lists(st.tuples(STEP, st.none() | st.integers(1, 40), st.booleans()), min_size=3, max_size=14)


@pytest.mark.ledger("MEM-02", "MEM-04")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(1, 8), st.none() | st.integers(10, 200))
def test_any_history_is_taken_by_both_vendors(
    tmp_path: Path, steps: list[tuple[tuple[Any, ...], int | None, bool]], most: int, tokens: int | None
) -> None:
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
