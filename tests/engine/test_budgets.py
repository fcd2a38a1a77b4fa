"""Budgets and usage: looked at before each call to the model, booked once, told once, and open again in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, AgentConfig, ChannelAgent, EntityMemory, tool
from gateway.access.budgets import count_name
from gateway.observe.events import BudgetExceeded, BudgetWarning
from gateway.providers.base import ProviderError, Request, Response, Usage
from gateway.store.errors import StoreUnavailable
from gateway.stored import keys
from gateway.testing import ScriptedProvider, ToolCall
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, rig, until

USED = Usage(prompt_tokens=60, completion_tokens=40, cached_prompt_tokens=20, cost_usd=0.4)
DAY = 86_400.0
CHAT = "agent/test:bot:ana"
ANA = "test:bot:ana"
LOOK_UP = ToolCall("look_up", {"what": "it"})


class Metered(ScriptedProvider):
    """A model with `usage` for every reply."""

    def __init__(self, script: Sequence[Any], usage: Usage = USED) -> None:
        super().__init__(script)
        self.usage = usage

    async def complete(self, request: Request) -> Response:
        return replace(await super().complete(request), usage=self.usage)


def bot(provider: Any, *, config: AgentConfig | None = None, **options: Any) -> ChannelAgent:
    @tool(read_only=True)
    async def look_up(what: str) -> str:
        """Look something up."""
        return f"{what} is here"

    return ChannelAgent(Agent([look_up], provider=provider, config=config), **options)


async def midnight(chat: Rig, *, plus: float = 0.0) -> None:
    """Move the clock to so many seconds after the next midnight of UTC."""
    now = await chat.store.now()
    of_today = now.hour * 3600 + now.minute * 60 + now.second
    await chat.advance(DAY - of_today + plus)


async def says(chat: Rig, *texts: str, person: str = "ana", **more: Any) -> None:
    await chat.hears(person, *texts, **more)


async def count(chat: Rig, name: str) -> Mapping[str, int]:
    (found,) = await chat.store.spent([name])
    return found


async def today(chat: Rig, person: str = ANA) -> Mapping[str, int]:
    return await count(chat, count_name("day", await chat.store.now(), "person", person))


def closed(text: str, holder: str = "person", language: str = "en") -> bool:
    return text.startswith(say(f"budget_{holder}", language, duration=""))


# ── the limit ──


@pytest.mark.ledger("USE-11")
async def test_person_is_told_once_and_the_budget_opens_at_midnight(tmp_path: Path) -> None:
    model = Metered(["one", "two", "three", "four"])
    async with rig(bot(model), tmp_path, budgets="person=1 USD/day") as chat:
        await midnight(chat, plus=60)
        await says(chat, "a", "b", "c", "d", "e")
        *answers, notice = chat.platform.texts()
        assert answers == ["one", "two", "three"] and closed(notice)
        assert "23 hours" in notice
        assert len(model.requests) == 3
        assert await chat.ready() == 0 and await chat.store.dead_letters() == []
        await midnight(chat)
        await says(chat, "f")
        assert chat.platform.texts()[-1] == "four"
        assert [m.content for m in model.requests[-1].messages if m.role == "user"] == ["a", "b", "c", "d", "e", "f"]


async def test_each_person_has_a_budget_and_the_bot_one_for_all(tmp_path: Path) -> None:
    model = Metered(["one", "two", "three"])
    async with rig(bot(model), tmp_path, budgets="person=100 tokens/day, bot=300 tokens/month") as chat:
        await says(chat, "a", "b")
        await says(chat, "a", "b", person="bob")
        await says(chat, "a", person="eva")
        await says(chat, "a", person="eva", place="#group")
        assert [closed(text) for text in chat.platform.texts("bob")] == [False, True]
        await says(chat, "a", person="zoe")
        assert closed(chat.platform.texts("zoe")[0], "bot")
        assert len(model.requests) == 3


async def test_notice_is_told_in_each_conversation_and_language(tmp_path: Path) -> None:
    model = Metered(["one"])
    async with rig(bot(model, language="pt"), tmp_path, budgets="person=1 tokens/month") as chat:
        await says(chat, "a", "b", "c")
        await says(chat, "d", "e", place="#group")
        assert [closed(text, language="pt") for text in chat.platform.texts()] == [False, True]
        assert [closed(text, language="pt") for text in chat.platform.texts("#group")] == [True]


async def test_turn_stops_between_two_calls_and_says_so_always(tmp_path: Path) -> None:
    model = Metered([LOOK_UP, "never", LOOK_UP])
    async with rig(bot(model), tmp_path, budgets="person=100 tokens/day") as chat:
        await says(chat, "a")
        (notice,) = chat.platform.texts()
        assert closed(notice) and len(model.requests) == 1
        (event,) = chat.worker.told.of_kind(BudgetExceeded)
        assert event.reason == "person=100 tokens/day: 100 are used"
        trace = [each for each in chat.worker.told.names(of="turn_") if each == "turn_failed"]
        assert trace == []


async def test_budget_of_the_turn_has_its_own_words(tmp_path: Path) -> None:
    model = Metered([LOOK_UP])
    limited = AgentConfig(max_total_tokens=50)
    async with rig(bot(model, config=limited), tmp_path, budgets="person=1 USD/day") as chat:
        await says(chat, "a")
        assert chat.platform.texts() == [say("budget", "en")]


async def test_commands_presses_and_launches_need_no_budget(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(), tmp_path, budgets="person=1 tokens/day") as chat:
        invoices.model.complete = spending(invoices.model.complete)  # type: ignore[method-assign, assignment]
        await says(chat, "delete INV-1")
        assert (await today(chat))["calls"] == 1
        await chat.handles("ana", "yes")
        assert invoices.deleted == ["INV-1"]
        await says(chat, "hello", "/help", "/usage", "/stop")
        texts = chat.platform.texts()
        assert sum(map(closed, texts)) == 1
        assert texts[-2].startswith("Today: 100 tokens") and texts[-1] == say("stopped_nothing", "en")
        assert len(invoices.model.requests) == 1


def spending(complete: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def spends(request: Request) -> Response:
        return replace(await complete(request), usage=USED)

    return spends


# ── the operator ──


@pytest.mark.ledger("CFG-10")
async def test_operator_is_warned_at_four_fifths_and_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Metered(["x"] * 20, Usage(prompt_tokens=10, cost_usd=0.1))
    async with rig(bot(model), tmp_path, budgets="person=1 USD/day") as chat:
        await midnight(chat)
        await says(chat, *"abcdefgh")
        assert chat.worker.told.of_kind(BudgetWarning) == []
        await says(chat, *"ijklmn")
        near, up = chat.worker.told.of_kind(BudgetWarning)
        assert (near.budget, near.holder, near.used, near.used_up) == ("person=1 USD/day", ANA, 0.8, False)
        assert (up.used, up.used_up) == (1.0, True)
        warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and r.name.endswith("events")]
        assert warned == ["the budget person=1 USD/day is nearly used up", "the budget person=1 USD/day is used up"]
        await midnight(chat)
        await says(chat, *"abcdefghi")
        assert len(chat.worker.told.of_kind(BudgetWarning)) == 3, "another day"


async def test_two_processes_warn_once(tmp_path: Path) -> None:
    model = Metered(["x"] * 9)
    async with rig(bot(model), tmp_path, budgets="bot=100 tokens/day") as chat:
        other = chat.another()
        await says(chat, "a", "b")
        await chat.says("bob", "c")
        await other.turn()
        assert len(model.requests) == 1
        told = [*chat.worker.told.of_kind(BudgetWarning), *other.told.of_kind(BudgetWarning)]
        assert [each.used_up for each in told] == [True]
        await other.engine.stop(0)


# ── the book ──


@pytest.mark.ledger("USE-06")
async def test_usage_is_booked_by_person_conversation_bot_and_day(tmp_path: Path) -> None:
    model = Metered([LOOK_UP, "one", "two", "three"])
    async with rig(bot(model), tmp_path) as chat:
        await midnight(chat)
        await says(chat, "a")
        await says(chat, "b", person="bob", place="#group")
        now = await chat.store.now()
        one = {
            "calls": 1,
            "prompt_tokens": 60,
            "completion_tokens": 40,
            "cached_prompt_tokens": 20,
            "cost_nanos": 4 * 10**8,
        }
        assert await today(chat) == {name: 2 * amount for name, amount in one.items()}
        assert await count(chat, count_name("day", now, "conversation", "agent/test:bot:#group")) == one
        for window in ("day", "month"):
            assert (await count(chat, count_name(window, now, "bot")))["calls"] == 3
        await midnight(chat)
        assert await today(chat) == {}
        await says(chat, "c")
        assert await today(chat) == one


async def test_taken_over_reply_is_booked_once(tmp_path: Path) -> None:
    """A process loses the lease in the second call: the first reply is booked with the checkpoint, the late reply is
    not."""
    hold = asyncio.Event()
    model = Metered([LOOK_UP, hold, "one", "too late"])
    async with rig(bot(model), tmp_path, budgets="person=1000 tokens/day") as chat:
        await chat.says("ana", "a")
        running = asyncio.create_task(chat.worker.turn_of(await chat.worker.lease("turn", lease_seconds=0.0)))
        await until(lambda: len(model.requests) >= 2)
        assert (await today(chat))["calls"] == 1
        other = chat.another()
        await other.turn()
        hold.set()
        await asyncio.gather(running, return_exceptions=True)
        assert len(model.requests) == 3
        assert (await today(chat))["calls"] == 2
        await other.engine.stop(0)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("number", range(1, 7))
async def test_each_kept_reply_is_booked_once_whichever_commit_fails(
    tmp_path: Path, number: int, *, applied: bool
) -> None:
    model = Metered([LOOK_UP, LOOK_UP, "one", "two", "three", "four"])
    async with rig(bot(model), tmp_path) as chat:

        def fail() -> None:
            if chat.wire.calls["commit"] == number:
                chat.wire.lost_answers["commit"] = int(applied)
                chat.wire.errors["commit"] = [] if applied else [StoreUnavailable("away")]

        chat.wire.hooks["commit"] = fail
        await chat.says("ana", "a")
        for _ in range(4):
            with contextlib.suppress(StoreUnavailable):
                await chat.turns()
            await chat.advance(10)
        lines = await chat.store.read(keys.key(chat.store, CHAT, keys.transcript))
        kept = [line for line in lines if isinstance(line.value, dict) and line.value.get("role") == "assistant"]
        assert len(kept) >= 2
        assert (await today(chat))["calls"] == len(kept) <= len(model.requests)


async def test_recorded_calls_run_though_the_budget_is_used_up(tmp_path: Path) -> None:
    async with rig(bot(Metered([LOOK_UP])), tmp_path, budgets="person=100 tokens/day") as chat:

        def fail() -> None:
            # the first commit reserves the call, the second records its reply
            chat.wire.errors["commit"] = [StoreUnavailable("away")] if chat.wire.calls["commit"] == 3 else []

        chat.wire.hooks["commit"] = fail
        await says(chat, "a")
        await chat.later(10)
        assert closed(chat.platform.texts()[-1])
        lines = await chat.store.read(keys.key(chat.store, CHAT, keys.transcript))
        assert any("it is here" in str(line.value) for line in lines)


async def test_failed_calls_are_not_booked(tmp_path: Path) -> None:
    down = ProviderError("openai", "503", retryable=False)
    async with rig(bot(Metered([LOOK_UP, down, "one"])), tmp_path) as chat:
        await says(chat, "a")
        await chat.later(6)
        assert chat.platform.texts()[-1] == "one"
        assert (await today(chat))["calls"] == 2


async def test_workers_on_one_store_count_together(tmp_path: Path) -> None:
    async with rig(bot(Metered(["x"] * 9)), tmp_path, budgets="person=250 tokens/day") as chat:
        for place in ("#a", "#b", "#c", "#d", "#e"):
            await chat.says("ana", "hello", place=place)
        other = chat.another()
        for worker in (chat.worker, other, chat.worker, other, other):
            await worker.turn()
        assert (await today(chat))["calls"] == 3
        await other.engine.stop(0)


# ── /usage ──


@pytest.mark.ledger("USE-02")
async def test_usage_command_tells_today_this_month_and_the_rest(tmp_path: Path) -> None:
    model = Metered(["one", "two"])
    async with rig(bot(model), tmp_path, budgets="person=1 USD/day, person=5000 tokens/month, bot=9 USD/day") as chat:
        await midnight(chat)
        await says(chat, "/usage", "a", "b", "/usage")
        nothing, _, _, used = chat.platform.texts()
        assert nothing.splitlines()[0] == "Today: 0 tokens and 0.00 USD"
        lines = used.splitlines()
        assert lines[0] == "Today: 200 tokens and 0.80 USD"
        assert lines[1] == "From the model's cache: 40 tokens"
        assert lines[2] == "This month: 200 tokens and 0.80 USD"
        assert lines[4].startswith("Left today: 0.20 USD. Time until it begins anew: 23 hours")
        assert lines[5].startswith("Left this month: 4,800 tokens.")
        assert len(lines) == 6


async def test_usage_command_names_the_tokens_without_a_price(tmp_path: Path) -> None:
    model = Metered(["one"], Usage(prompt_tokens=12_345))
    async with rig(bot(model, language="de"), tmp_path) as chat:
        await says(chat, "a", "/usage")
        assert chat.platform.texts()[-1].splitlines()[:2] == [
            "Heute: 12.345 Token",
            "Kosten nicht bekannt: 12.345 Token",
        ]


# ── another agent of the same bot ──


async def test_calls_of_an_inner_agent_are_booked_and_limited(tmp_path: Path) -> None:
    inner = Agent(provider=Metered(["It is paid."]))
    task = ToolCall("ask_accountant", {"task": "Is it paid?"})
    outer = Metered([task, "Yes.", task])
    asking = ChannelAgent(Agent([inner.as_tool("ask_accountant", "Ask about money.")], provider=outer))
    async with rig(asking, tmp_path, budgets="person=400 tokens/day") as chat:
        await says(chat, "a")
        assert chat.platform.texts() == ["Yes."]
        assert (await today(chat))["calls"] == 3
        await says(chat, "b")
        assert closed(chat.platform.texts()[-1])
        assert (await today(chat))["calls"] == 4


async def test_reading_for_a_memory_counts_and_waits(tmp_path: Path) -> None:
    found = json.dumps({"entities": [{"name": "Alice", "type": "person"}]})
    reader = Metered(["no JSON", found, found])
    config = AgentConfig(entity_memory=EntityMemory(provider=reader))
    async with rig(bot(Metered(["Noted."] * 3), config=config), tmp_path, budgets="person=250 tokens/day") as chat:
        await midnight(chat, plus=60)
        await chat.handles("ana", "Alice called")
        assert (await today(chat))["calls"] == 2, "a call counts whose reply cannot be read"
        await chat.handles("ana", "and Bo")
        assert ((await today(chat))["calls"], len(reader.requests)) == (3, 1), "the memory waits"
        await chat.advance(3600)
        await chat.work()
        assert len(reader.requests) == 1
        await midnight(chat)
        await chat.handles("ana", "hello")
        assert "Alice called" in reader.requests[1].messages[0].content
        assert (await today(chat))["calls"] == 2
