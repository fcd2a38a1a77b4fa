"""SIGKILL while a memory is filled after the reply: another process reads the same messages, and no fact is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage

pytestmark = pytest.mark.timeout(180)

BOT = Path(__file__).with_name("memory_bot.py")
FOUND = json.dumps({"entities": [{"name": "Alice", "type": "person"}]})
NONE = json.dumps({"entities": []})
NOTED = Call("remember", {"content": "likes tea", "persistent": True})


def readings(stage: Stage) -> int:
    return sum(request["model"] == "small-model" for request in stage.model.requests)


async def test_killed_while_a_memory_is_filled_it_is_filled_once_more(stage: Stage) -> None:
    hold = asyncio.Event()
    stage.model.script([NOTED, Say("Noted."), Say(FOUND, hold=hold), Say(FOUND)])
    await stage.says("Alice called, and I like tea")
    await stage.until(lambda: stage.texts() == ["Noted."])
    await stage.model.wait_for(lambda _: readings(stage) == 1)
    await stage.restart()
    hold.set()
    await stage.model.wait_for(lambda _: readings(stage) == 2)
    stage.model.script([Say("Tea with Alice?"), Say(NONE)])
    await stage.says("what now?")
    await stage.until(lambda: stage.texts()[-1] == "Tea with Alice?")  # the kill may have repeated "Noted."
    await stage.model.wait_for(lambda _: readings(stage) == 3)
    (read,) = [each for each in stage.model.requests if "what now?" in str(each) and each["model"] == "test-model"]
    system = read["messages"][0]["content"]
    assert '[Long-term Memory]\n- "likes tea"' in system
    assert system.count("likes tea") == 1
    stage.model.script([Say("Alice."), Say(NONE)])
    await stage.says("who called?")
    await stage.until(lambda: stage.texts()[-1] == "Alice.")
    await stage.model.wait_for(lambda _: readings(stage) == 4)
    (read,) = [each for each in stage.model.requests if "who called?" in str(each) and each["model"] == "test-model"]
    assert '[Known Entities]\n- "Alice (person)"' in read["messages"][0]["content"]
