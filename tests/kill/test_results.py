"""SIGKILL while a result is shortened, a reply is cached or a further turn is planned: each happens once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.wording import say
from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage

pytestmark = pytest.mark.timeout(180)

BOT = Path(__file__).with_name("results_bot.py")
DUPLICATE = say("may_be_duplicate", "en")


async def killed_in_call(stage: Stage, number: int, steps: list[Any], said: str, answers: list[str]) -> None:
    """Ana writes, the process dies in this call to the model, and another process goes on to these answers.

    A message in the sending at the death is sent again, after a warning.
    """
    hold = asyncio.Event()
    stage.model.script([*steps[: number - 1], Say("never seen", hold=hold), *steps[number - 1 :]])
    await stage.says(said)
    await stage.model.wait_for(number)
    await stage.restart()
    hold.set()
    await stage.until(lambda: [*dict.fromkeys(each for each in stage.texts() if each != DUPLICATE)] == answers)


def is_summary(request: Any) -> bool:
    return "Shorten the result" in str(request["messages"][0]["content"])


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_killed_around_a_summary_it_is_made_once(stage: Stage, number: int) -> None:
    await killed_in_call(stage, number, [Call("read_rows", {}), Say("1,000 rows"), Say("Done.")], "rows", ["Done."])
    last = stage.model.requests[-1]["messages"][-1]
    assert (last["role"], last["content"]) == ("tool", "[compressed from 5000 chars] 1,000 rows")
    # The summary that was under way when the process died has no result, so it is asked for again.
    assert sum(map(is_summary, stage.model.requests)) == (2 if number == 2 else 1)


@pytest.mark.parametrize("number", [2, 3])
async def test_killed_around_a_follow_up_it_is_planned_once(stage: Stage, number: int) -> None:
    steps = [Call("watch", {"order": "A-1"}), Say("I watch it."), Say("It has arrived.")]
    await killed_in_call(stage, number, steps, "watch A-1", ["I watch it.", "It has arrived."])
    await stage.says("thanks", Say("Bye."))  # a second follow-up would be a call before this one, or part of it
    await stage.until(lambda: stage.texts()[-1] == "Bye.")
    assert len(stage.model.requests) == 5
    assert str(stage.model.requests[-1]["messages"]).count("Look up A-1 again.") == 1


async def test_killed_before_a_reply_is_cached_it_is_cached_once(stage: Stage) -> None:
    await killed_in_call(stage, 1, [Say("A language.")], "What is Python?", ["A language."])
    for text in ("/new", "What is Python?"):
        await stage.says(text)
    await stage.until(lambda: stage.texts().count("A language.") == 2)
    assert len(stage.model.requests) == 2
