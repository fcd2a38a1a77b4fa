"""A conversation too long for the model, or a message refused by the vendor, holds up no other conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import Agent, ChannelAgent
from gateway.providers.openai import OpenAIProvider
from gateway.wording import say
from tests.engine.rig import Rig, rig
from tests.fakes.model_server import Fail
from tests.fakes.openai import FakeOpenAI


@pytest.fixture
async def model() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as model:
        yield model


@pytest.fixture
async def chat(tmp_path: Path, model: FakeOpenAI) -> AsyncIterator[Rig]:
    provider = OpenAIProvider("gpt-test", api_key=model.key, base_url=model.url)
    async with rig(ChannelAgent(Agent(provider=provider)), tmp_path) as chat:
        yield chat
    await provider.close()


async def test_full_history_delays_no_other_person_in_the_group(chat: Rig, model: FakeOpenAI) -> None:
    model.most_characters = 60_000
    model.script(["ok"] * 22)
    for number in range(20):
        await chat.handles("mallory", f"{number} " + "x" * 6_000, place="#room")
    await chat.handles("vera", "hello", place="#room")
    assert len(chat.platform.texts("#room")) == 21
    assert len(model.refused) <= 2, "the window became smaller"


async def test_message_too_long_for_the_model_is_not_tried_again(chat: Rig, model: FakeOpenAI) -> None:
    model.most_characters = 2_000
    model.script(["Hello Vera."])
    await chat.says("mallory", "x" * 100_000, place="#room")
    await chat.handles("vera", "hello", place="#room")
    assert chat.platform.texts("#room") == [say("history_too_long", "en"), "Hello Vera."]
    assert len(model.refused) == 2
    (letter,) = await chat.store.dead_letters()
    assert letter.reason == "it is too long for the model"


@pytest.mark.parametrize("fail", [Fail(400, "content_filter"), Fail(422)])
async def test_message_the_vendor_refuses_is_put_aside_alone(chat: Rig, model: FakeOpenAI, fail: Fail) -> None:
    model.script([fail, "Hello Vera."])
    await chat.says("mallory", "something odd", place="#room")
    await chat.handles("vera", "hello", place="#room")
    refused, answered = chat.platform.texts("#room")
    assert refused.startswith(say("error_incident", "en", incident=""))
    assert answered == "Hello Vera."


async def test_a_key_that_is_refused_is_the_operators_to_mend(chat: Rig, model: FakeOpenAI) -> None:
    model.script([Fail(401, "invalid_api_key"), "Hello."])
    await chat.handles("ana", "hello")
    assert chat.platform.texts() == [say("model_down", "en")]
    await chat.advance(6)
    await chat.work()
    assert chat.platform.texts()[-1] == "Hello."
