"""The worker that ends a turn goes on with the outbox that the turn filled."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from channels import Unavailable
from channels.channel import Pace
from gateway import Agent, ChannelAgent
from gateway.engine.engine import Engine
from gateway.store.errors import Conflict, Fenced, StoreUnavailable
from gateway.testing import ScriptedProvider
from tests.engine.rig import Rig, rig

pytestmark = pytest.mark.both_stores


async def until_sent(chat: Rig, many: int) -> None:
    async with asyncio.timeout(20):
        while len(chat.platform.sent) < many or not await chat.worker.engine.idle():
            await asyncio.sleep(0.01)


async def test_the_end_of_a_turn_takes_the_outbox_it_fills(tmp_path: Path) -> None:
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"]))), tmp_path) as chat:
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await until_sent(chat, 1)
        assert chat.platform.texts() == ["Hello Ana"]
        assert chat.wire.calls["commit"] == 2, "the turn, and the receipt"
        assert (await chat.store.stats()).leased == 0
        await chat.worker.engine.stop()


@pytest.mark.parametrize("in_doubt", ["repeat", "drop"])
async def test_a_commit_whose_answer_is_lost_leaves_no_doubt(
    tmp_path: Path, in_doubt: Literal["repeat", "drop"]
) -> None:
    """The lane that it took is nobody's, and is given back: what was never sent is no duplicate, and is sent."""
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])), in_doubt=in_doubt)
    async with rig(bot, tmp_path) as chat:
        await chat.says("ana", "hi")
        chat.wire.lost_answers["commit"] = 1
        chat.worker.engine.start()
        await until_sent(chat, 1)
        assert (chat.platform.texts(), await chat.store.dead_letters()) == (["Hello Ana"], [])
        await chat.worker.engine.stop()


async def test_busy_sender_leaves_the_outbox_to_a_free_one(tmp_path: Path) -> None:
    answers = [f"answer {number}" for number in range(5)]
    bot = ChannelAgent(Agent(provider=ScriptedProvider(answers)))
    async with rig(bot, tmp_path) as chat:
        chat.platform.will = [Unavailable("down")]
        chat.worker.engine = Engine(chat.worker.context, sends=1, takers=1)
        chat.worker.engine.start()
        for number in range(5):
            await chat.says(f"person {number}", "hi")
        await until_sent(chat, 5)
        assert sorted(str(part.arguments["text"]) for _, part in chat.platform.sent) == answers
        await chat.worker.engine.stop()


async def test_a_lost_answer_is_dealt_with_though_the_store_is_away(tmp_path: Path) -> None:
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])), in_doubt="drop"), tmp_path) as chat:
        await chat.says("ana", "hi")
        chat.wire.lost_answers["commit"] = 1
        chat.wire.errors = {"give_back": [StoreUnavailable("away")] * 3, "renew": [Fenced("gone")]}
        chat.worker.engine.start()
        await until_sent(chat, 1)
        assert (chat.platform.texts(), await chat.store.dead_letters()) == (["Hello Ana"], [])
        assert chat.wire.calls["give_back"] == 4
        await chat.worker.engine.stop()


async def test_pace_is_acquired_while_the_reply_is_being_stored(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana", "Hello again"])))
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0, place_per_second=1000.0)) as chat:
        asked: list[str] = []
        for name in ("commit", "acquire", "commit answered"):
            chat.wire.hooks[name] = partial(asked.append, name)
        chat.worker.engine.start()
        for number in (1, 2):
            await chat.says("ana", "hi")
            await until_sent(chat, number)
        assert asked == ["commit", "acquire", "commit answered", "commit", "commit answered"] * 2
        await chat.worker.engine.stop()


async def test_a_pace_that_is_over_parks_what_was_stored(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([f"answer {number}" for number in range(5)])))
    async with rig(bot, tmp_path, pace=Pace(place_per_second=0.01)) as chat:
        chat.worker.engine.start()
        for number in range(5):
            await chat.says("ana", f"{number}")
            await until_sent(chat, min(number + 1, 3))
        assert chat.platform.texts() == ["answer 0", "answer 1", "answer 2"]
        assert (await chat.store.stats()).parked == 1
        chat.store.offset_seconds = 100.0
        await until_sent(chat, 4)
        assert chat.platform.texts()[3:] == ["answer 3"], "counted once, however often it was asked"
        await chat.worker.engine.stop()


async def test_what_could_not_be_stored_is_not_waited_for(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])))
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0)) as chat:
        chat.wire.errors = {"commit": [StoreUnavailable("away")], "acquire": [StoreUnavailable("away")]}
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await until_sent(chat, 1)
        assert chat.platform.texts() == ["Hello Ana"]
        assert not chat.worker.context.pacing._ahead
        await chat.worker.engine.stop()


async def test_each_reply_is_counted_once_by_the_pace(tmp_path: Path) -> None:
    """Also what is stored while something else is being sent there, or only at the third attempt."""
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana", "Hello again", "And again"])))
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0)) as chat:
        held = asyncio.Event()
        chat.platform.will = [held]
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await chat.platform.sending.wait()
        await chat.says("ana", "hello?")
        async with asyncio.timeout(20):
            while (await chat.store.stats()).parts < 2:
                await asyncio.sleep(0.01)
        held.set()
        await until_sent(chat, 2)
        assert chat.wire.calls["acquire"] == 2
        chat.wire.errors = {"commit": [Conflict("x"), Conflict("y")]}
        await chat.says("ana", "and?")
        await until_sent(chat, 3)
        assert chat.wire.calls["acquire"] <= 4, "at first, and when it is sent"
        await chat.worker.engine.stop()


async def test_a_pace_that_cannot_be_asked_for_leaves_no_doubt(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])), in_doubt="drop")
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0)) as chat:
        chat.wire.errors = {"acquire": [StoreUnavailable("away")] * 2}
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await until_sent(chat, 1)
        assert (chat.platform.texts(), await chat.store.dead_letters()) == (["Hello Ana"], [])
        assert chat.wire.calls["acquire"] == 3
        await chat.worker.engine.stop()
