"""SIGKILL while a memory is filled after the reply: another process reads the same messages, and no fact is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage, a_store, on_stage

pytestmark = pytest.mark.timeout(180)

BOT = Path(__file__).with_name("memory_bot.py")
FOUND = json.dumps({"entities": [{"name": "Alice", "type": "person"}]})
NONE = json.dumps({"entities": []})
NOTED = Call("remember", {"content": "likes tea", "persistent": True})


@pytest.fixture(params=["sqlite", "redis"])
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with a_store(request.param, tmp_path) as store, on_stage(tmp_path, store) as stage:
        await stage.start(bot=BOT)
        yield stage


def readings(stage: Stage) -> int:
    return sum(request["model"] == "small-model" for request in stage.model.requests)


async def test_killed_while_a_memory_is_filled_it_is_filled_once_more(stage: Stage) -> None:
    ana, hold = stage.telegram.person("Ana"), asyncio.Event()
    stage.model.script([NOTED, Say("Noted."), Say(FOUND, hold=hold), Say(FOUND)])
    await stage.telegram.person_says(ana, ana, "Alice called, and I like tea")
    await stage.until(lambda: stage.texts(ana) == ["Noted."])
    await stage.model.wait_for(lambda _: readings(stage) == 1)
    await stage.kill()
    hold.set()
    await stage.start(bot=BOT)
    await stage.model.wait_for(lambda _: readings(stage) == 2)
    stage.model.script([Say("Tea with Alice?"), Say(NONE)])
    await stage.telegram.person_says(ana, ana, "what now?")
    await stage.until(lambda: stage.texts(ana)[-1] == "Tea with Alice?")  # the kill may have repeated "Noted."
    await stage.model.wait_for(lambda _: readings(stage) == 3)
    (read,) = [each for each in stage.model.requests if "what now?" in str(each) and each["model"] == "test-model"]
    system = read["messages"][0]["content"]
    assert '[Long-term Memory]\n- "likes tea"' in system
    assert system.count("likes tea") == 1
    stage.model.script([Say("Alice."), Say(NONE)])
    await stage.telegram.person_says(ana, ana, "who called?")
    await stage.until(lambda: stage.texts(ana)[-1] == "Alice.")
    await stage.model.wait_for(lambda _: readings(stage) == 4)
    (read,) = [each for each in stage.model.requests if "who called?" in str(each) and each["model"] == "test-model"]
    assert '[Known Entities]\n- "Alice (person)"' in read["messages"][0]["content"]
