"""A person sees that the bot is at work: in turns, in effects, and in words when it takes long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Unavailable
from gateway import Agent, ChannelAgent, tool
from gateway.engine import signs_of_life
from gateway.engine.execution.executor import ActionExecutor
from gateway.engine.turns import live
from gateway.testing import ScriptedProvider, ToolCall
from gateway.wording import say
from tests.engine.rig import Platform, Rig, rig
from tests.engine.streaming import Board, Typist


class Shows(Platform):
    """It shows typing, under a message where it is told one."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(typing=True, **capabilities)
        self.typed: list[str | None] = []
        self.seen = asyncio.Event()

    async def typing(self, address: Address) -> None:
        self.typed.append(None)
        self.seen.set()
        raise Unavailable("503")


class ShowsUnder(Shows):
    async def typing_under(self, address: Address, message_id: str, *, ends: bool = False) -> None:
        self.typed.append(f"{message_id} {'ends' if ends else 'typing'}")
        self.seen.set()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "_TYPING_AFTER_SECONDS", 0.0)


async def slow_turn(chat: Rig, hold: asyncio.Event, platform: Shows) -> None:
    await chat.says("ana", "hi", message_id="m1")
    turn = asyncio.create_task(chat.worker.turn())
    await platform.seen.wait()
    hold.set()
    await turn
    await chat.worker.context.tasks.ended()


async def test_a_turn_is_seen_though_the_notice_fails(tmp_path: Path) -> None:
    hold, platform = asyncio.Event(), Shows()
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider([hold, "Hello"]))), tmp_path, platform) as chat:
        await slow_turn(chat, hold, platform)
        await chat.turns()
        assert platform.typed == [None]
        assert platform.texts() == ["Hello"]


async def test_a_turn_is_seen_under_its_message_until_it_ends(tmp_path: Path) -> None:
    hold, platform = asyncio.Event(), ShowsUnder()
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider([hold, "Hello"]))), tmp_path, platform) as chat:
        await slow_turn(chat, hold, platform)
    assert platform.typed == ["m1 typing", "m1 ends"]


async def test_an_effect_is_seen_under_its_question(tmp_path: Path) -> None:
    hold, platform = asyncio.Event(), ShowsUnder()

    @tool(confirm="Pay?")
    async def pay() -> str:
        """Pay."""
        await hold.wait()
        return "paid"

    script = ScriptedProvider([ToolCall("pay", {})])
    async with rig(ChannelAgent(Agent([pay], provider=script)), tmp_path, platform) as chat:
        await chat.hears("ana", "pay")
        await chat.worker.context.tasks.ended()
        platform.typed.clear()
        platform.seen.clear()
        code = chat.platform.texts()[-1].partition("**OK ")[2][:4]
        await chat.says("ana", f"ok {code}")
        lease = await chat.worker.lease("action")
        effect = asyncio.create_task(ActionExecutor(chat.worker.context).run(lease))
        await platform.seen.wait()
        hold.set()
        await effect
        await chat.worker.context.tasks.ended()
        assert platform.typed == ["1 typing", "1 ends"]


@pytest.mark.ledger("PYG-12")
async def test_a_long_turn_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "STILL_WORKING_SECONDS", 0.0)
    hold, told = asyncio.Event(), say("still_working", "en")
    script = ScriptedProvider([hold, "never said", "Hello"])
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path) as chat:
        await chat.says("ana", "hi")
        turn = asyncio.create_task(chat.worker.turn())
        while not await chat.store.outbox(f"{chat.bot.name}/test:bot:ana"):
            await asyncio.sleep(0.001)
        turn.cancel()  # the process ends, and another one takes the turn over
        await asyncio.gather(turn, return_exceptions=True)
        hold.set()
        await chat.turns()
        assert chat.platform.texts() == [told, "never said"]
        assert "/stop" in told


async def test_a_text_that_is_shown_is_a_sign_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(signs_of_life, "STILL_WORKING_SECONDS", 0.01)
    typist, board = Typist(), Board()
    async with rig(ChannelAgent(Agent(provider=typist)), tmp_path, board) as chat:
        await chat.says("ana", "hi")
        turn = asyncio.create_task(chat.worker.turn())
        typist.writes("Once upon")
        await board.until(["Once upon"])
        loop = asyncio.get_running_loop()
        passed = asyncio.Event()
        loop.call_later(0.02, passed.set)
        await passed.wait()
        typist.writes(" a time", ())
        await turn
        await chat.turns()
        assert board.shown == {"1": "Once upon a time"}
