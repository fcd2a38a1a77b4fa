"""Limits hold when many callers reach them at once: rates of messages and places, replies, budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from channels import Person
from gateway import Agent, AgentConfig, ChannelAgent
from gateway.access.budgets import count_name
from gateway.config.limits import Limits, Share
from gateway.engine.intake.inbox import Rates
from gateway.engine.turns.runner import TurnRunner
from gateway.providers.base import Request, Response, Usage
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, Worker, here, message, rig, until

pytestmark = pytest.mark.both_stores

AT_ONCE = 64
ANA = "test:bot:ana"


class Metered:
    """A model with 15 tokens a reply, answering while `let_go` is set."""

    name = "metered"

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.asked, self.running, self.most_at_once = 0, 0, 0

    async def complete(self, request: Request) -> Response:
        self.asked += 1
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await self.let_go.wait()
        finally:
            self.running -= 1
        return Response(content="here", usage=Usage(prompt_tokens=10, completion_tokens=5))


def bot(model: Metered) -> ChannelAgent:
    return ChannelAgent(Agent([], provider=model, config=AgentConfig(max_tokens=50)))


async def leases(chat: Rig, count: int, person: str = "ana") -> list[Lease]:
    """Return the leases of so many turns of a person."""
    await asyncio.gather(*(chat.says(person, "hello", place=f"#{number}") for number in range(count)))
    found = [await chat.store.lease("w", ["turn"], lease_seconds=60.0) for _ in range(count)]
    return [lease for lease in found if lease is not None]


def begin(workers: Sequence[Worker], taken: Sequence[Lease]) -> list[asyncio.Task[object]]:
    """Run turns side by side, as the processes of these workers do."""
    turns = [TurnRunner(worker.context, worker.decisions) for worker in workers]
    return [asyncio.create_task(turns[n % len(turns)].run(lease)) for n, lease in enumerate(taken)]


# ── rates ──


async def test_messages_side_by_side_are_all_read(tmp_path: Path) -> None:
    async with rig(Invoices().bot(), tmp_path, limits=Limits(messages=Share(60))) as chat:
        for first in range(0, 40, 8):
            eight = [(f"word {number}", f"#{number}") for number in range(first, first + 8)]
            await asyncio.gather(*(chat.take(message("ana", text, place=place)) for text, place in eight))
        await chat.work()
        told = {part.arguments["text"] for _, part in chat.platform.sent}
        assert told == {f"You said: word {number}" for number in range(40)}


@pytest.mark.parametrize("share", [Share(40), Share(None, 40), Share(None, None, 40), Share(1), Share(7)])
async def test_a_rate_is_exact_for_callers_at_once(tmp_path: Path, share: Share) -> None:
    async with rig(Invoices().bot(), tmp_path) as chat:
        now = 0.0
        rates = Rates(chat.store, "messages", share, lambda: now)
        person = Person(channel="test", account="bot", user_id="ana")
        most = share.person or share.place or share.all
        for _ in range(3):
            told = await asyncio.gather(*(rates.exceeded(person, here("#room")) for _ in range(AT_ONCE)))
            assert told.count(None) == most
            now += 60.0
            await chat.advance(60.0)


async def test_replies_to_strangers_are_exact_at_once(tmp_path: Path) -> None:
    limits = Limits(strangers=Share(1, 1, 2))
    async with rig(Invoices().bot(), tmp_path, limits=limits, people=["test:bot:ana"]) as chat:
        await asyncio.gather(*(chat.says(f"stranger {number}", "hello") for number in range(AT_ONCE)))
        await chat.worker.context.tasks.ended()
        assert (await chat.store.stats()).parts == 2


async def test_too_fast_is_told_once_to_callers_at_once(tmp_path: Path) -> None:
    async with rig(Invoices().bot(), tmp_path, limits=Limits(messages=Share(6))) as chat:
        await asyncio.gather(*(chat.says("ana", "hello", place=f"#{number}") for number in range(AT_ONCE)))
        await chat.work()
        told = [part.arguments["text"] for _, part in chat.platform.sent]
        assert told.count(say("too_fast", "en")) == 1 and len(told) == 6 + 1


# ── budgets ──


@pytest.mark.parametrize("budget", ["person=30 tokens/day", "bot=30 tokens/month", "person=0.0004 USD/day"])
async def test_a_budget_is_exact_for_turns_at_once(tmp_path: Path, budget: str) -> None:
    model = Metered()
    model.let_go.set()
    async with rig(bot(model), tmp_path, budgets=budget) as chat:
        other = chat.another()
        await asyncio.gather(*begin([chat.worker, other], await leases(chat, AT_ONCE)))
        assert model.asked == 2 and model.most_at_once == 1
        (spent,) = await chat.store.spent([count_name("day", await chat.store.now(), "person", ANA)])
        assert spent["calls"] == 2
        await other.context.tasks.ended()
        await released(chat, ANA, "agent")
        await other.engine.stop(0)


async def released(chat: Rig, *holders: str) -> None:
    """Assert that no budget is held."""
    await chat.worker.context.tasks.ended()
    for holder in holders:
        key = keys.key(chat.store, holder, keys.reserved)
        assert (await chat.store.get([key]))[key].value is None


async def test_a_large_budget_holds_up_no_turn(tmp_path: Path) -> None:
    model = Metered()
    async with rig(bot(model), tmp_path, budgets="person=1 USD/day, bot=9000 tokens/day") as chat:
        running = begin([chat.worker], await leases(chat, 16))
        await until(lambda: model.running == 16)
        model.let_go.set()
        await asyncio.gather(*running)
        await released(chat, ANA, "agent")


async def test_a_failed_call_gives_its_room_back(tmp_path: Path) -> None:
    model = Metered()
    async with rig(bot(model), tmp_path, budgets="person=30 tokens/day") as chat:
        first, second = await leases(chat, 2)
        (stuck,) = begin([chat.worker], [first])
        await until(lambda: model.running == 1)
        (waiting,) = begin([chat.worker], [second])
        await until(lambda: len(chat.worker.context.reservations._holders[ANA].reserved) == 2)
        assert model.asked == 1
        stuck.cancel()
        model.let_go.set()
        await asyncio.wait([stuck, waiting])
        assert model.asked == 2
        await released(chat, ANA)


async def test_another_process_takes_a_reservation_over(tmp_path: Path) -> None:
    model = Metered()
    async with rig(bot(model), tmp_path, budgets="person=30 tokens/day") as chat:
        await chat.says("ana", "hello")
        lost = await chat.worker.lease("turn", lease_seconds=0.0)
        (stuck,) = begin([chat.worker], [lost])
        await until(lambda: model.running == 1)
        other = chat.another()
        taken = asyncio.create_task(other.turn())
        await until(lambda: model.asked == 2)
        model.let_go.set()
        await asyncio.gather(stuck, taken, return_exceptions=True)
        await other.context.tasks.ended()
        await released(chat, ANA)
        await other.engine.stop(0)
