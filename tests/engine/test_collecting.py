"""A turn that waits for more of a burst: how long, for what, and what ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels import Attachment
from gateway import Agent, ChannelAgent
from gateway.providers.base import ProviderError
from gateway.testing import ChatDriver, ScriptedProvider
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, rig, user_lines

pytestmark = pytest.mark.both_stores

WINDOW = 1000.0


def bot(script: ScriptedProvider, **options: Any) -> ChannelAgent:
    return ChannelAgent(Agent(provider=script), collect_seconds=WINDOW, **options)


@pytest.fixture
def script() -> ScriptedProvider:
    return ScriptedProvider([f"answer {number}" for number in range(1, 9)])


@pytest.fixture
async def chat(tmp_path: Path, script: ScriptedProvider) -> AsyncIterator[Rig]:
    async with rig(bot(script), tmp_path) as chat:
        yield chat


async def test_burst_is_one_turn_and_each_message_restarts_the_wait(chat: Rig, script: ScriptedProvider) -> None:
    for text in ("one", "two", "three"):
        await chat.hears("ana", text)
        await chat.later(WINDOW - 200)
    assert script.requests == []
    stats = await chat.store.stats()
    assert (stats.leased, stats.parked, stats.waiting) == (0, 1, 3), "nobody holds it meanwhile"
    await chat.later(201)
    assert (user_lines(script), len(script.requests)) == (["one", "two", "three"], 1)
    assert chat.platform.texts() == ["answer 1"]


async def test_a_steady_stream_is_answered_all_the_same(chat: Rig, script: ScriptedProvider) -> None:
    seconds = 0.0
    while not script.requests:
        await chat.hears("ana", f"at {seconds}")
        seconds += WINDOW - 200
        await chat.later(WINDOW - 200)
    assert 5 * WINDOW - 200 <= seconds < 6 * WINDOW


@pytest.mark.parametrize("answer", ["yes", "No!", "sim", "OK K7P2"])
async def test_commands_and_answers_end_the_collecting_at_once(
    chat: Rig, script: ScriptedProvider, answer: str
) -> None:
    await chat.hears("ana", answer)
    alone = len(chat.platform.texts())
    await chat.hears("ana", "hello")
    assert len(chat.platform.texts()) == alone == 1
    await chat.hears("ana", answer)
    assert len(chat.platform.texts()) == 3
    assert (await chat.store.stats()).waiting == 0


async def test_a_command_for_help_overtakes_what_is_being_collected(chat: Rig, script: ScriptedProvider) -> None:
    await chat.says("ana", "hello")
    await chat.hears("ana", "/help")
    assert (len(chat.platform.texts()), script.requests) == (1, [])
    await chat.later(WINDOW)
    assert chat.platform.texts()[1:] == ["answer 1"]


async def test_a_press_waits_for_nothing() -> None:
    invoices = Invoices()
    async with ChatDriver(invoices.bot(collect_seconds=WINDOW)) as chat:
        await chat.says("ana", "delete INV-1")
        assert chat.messages == []
        await chat.clock.advance(WINDOW + 1)
        await chat.says("ana", "by the way")
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]
        assert len(invoices.model.requests) == 1
        await chat.clock.advance(WINDOW + 1)
        assert any(message.text == "You said: by the way" for message in chat.messages)


async def test_yes_right_after_the_question_counts_without_a_wait(tmp_path: Path) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(collect_seconds=WINDOW), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.later(WINDOW + 1)
        await chat.says("ana", "yes")
        await chat.worker.turn()
        assert (await chat.store.stats()).waiting == 0
        assert len(invoices.model.requests) == 1


async def test_what_comes_during_a_turn_may_go_on_after_it(chat: Rig, script: ScriptedProvider) -> None:
    await chat.hears("ana", "one")
    await chat.advance(WINDOW + 1)
    lease = await chat.worker.lease("turn")
    await chat.says("ana", "two")
    await chat.says("ana", "/pending")
    await chat.worker.turn_of(lease)
    await chat.turns()
    assert chat.platform.texts()[:2] == ["answer 1", "answer 2"]
    await chat.hears("ana", "three")
    assert len(script.requests) == 2


async def test_the_message_of_somebody_else_does_not_hold_up_the_first(chat: Rig, script: ScriptedProvider) -> None:
    await chat.hears("ana", "one", place="#team")
    await chat.says("bob", "two", place="#team")
    await chat.later(WINDOW + 1)
    assert [len(request.messages) for request in script.requests] == [1, 3]


async def test_another_process_takes_the_burst_up(chat: Rig, script: ScriptedProvider) -> None:
    await chat.says("ana", "one")
    assert await chat.another().turn() is None
    await chat.says("ana", "two")
    await chat.advance(WINDOW + 1)
    assert await chat.another().turn() is not None
    assert user_lines(script) == ["one", "two"]


async def test_an_edit_within_the_wait_is_the_text_that_is_read(chat: Rig, script: ScriptedProvider) -> None:
    await chat.hears("ana", "send INV-1", message_id="m1")
    await chat.edits("ana", "m1", "send INV-2")
    await chat.turns()
    assert script.requests == []
    await chat.later(WINDOW + 1)
    assert user_lines(script) == ["send INV-2"]


async def test_a_turn_that_failed_does_not_wait_again(tmp_path: Path) -> None:
    script = ScriptedProvider([ProviderError("openai", "503", retryable=False), "Here I am."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.says("ana", "one")
        await chat.later(WINDOW + 1)
        await chat.says("ana", "two")
        await chat.later(6)
        assert user_lines(script) == ["one", "two"]


async def test_ask_channel_does_not_wait_to_collect(script: ScriptedProvider) -> None:
    async with bot(script) as own:
        assert (await own.ask_channel("ana", "hello")).content == "answer 1"


async def test_no_collect_window_costs_no_store_call(tmp_path: Path, script: ScriptedProvider) -> None:
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path) as chat:
        await chat.says("ana", "hello")
        await chat.worker.turn()
        assert chat.wire.calls == {"accept": 1, "lease": 1, "commit": 1}


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_invalid_collect_seconds_are_refused(script: ScriptedProvider, seconds: float) -> None:
    with pytest.raises(ValueError, match="collect_seconds"):
        ChannelAgent(Agent(provider=script), collect_seconds=seconds)


async def test_an_album_is_one_message(tmp_path: Path) -> None:
    script = ScriptedProvider(["Nice."])
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path) as chat:
        for number in range(3):
            photo = Attachment(kind="image", ref=f"p{number}", filename=f"{number}.jpg")
            await chat.hears("ana", "our trip" if not number else "", attachments=(photo,), album="a1")
        assert script.requests == []
        await chat.later(1.1)
        assert user_lines(script) == ["our trip\n[image: 0.jpg]", "[image: 1.jpg]", "[image: 2.jpg]"]
        assert len(script.requests) == 1
