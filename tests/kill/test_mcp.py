"""SIGKILL at every step of a call of an MCP server's tool: it is made once, and a doubt about it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage, on_stage

pytestmark = pytest.mark.timeout(180)

BOT = Path(__file__).with_name("mcp_bot.py")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        await stage.start(bot=BOT)
        yield stage


async def test_killed_before_the_yes_it_is_called_once_after_it(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.model.script([Call("shop_pay", {"invoice_id": "INV-1"}), Say("It is paid.")])
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    await stage.kill()
    await stage.start(bot=BOT)
    await stage.telegram.press(prompt, "Confirm", ana)
    await stage.until(lambda: "It is paid." in stage.texts(ana))
    assert stage.business.done == [("pay", "INV-1", "mcp")]
    assert "pay INV-1 ok" in str(stage.model.requests[-1]["messages"])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_in_a_confirmed_call_it_is_unknown(stage: Stage, when: str) -> None:
    ana = stage.telegram.person("Ana")
    stage.business.hold_before, stage.business.hold_after = when == "before", when == "after"
    stage.model.script([Call("shop_pay", {"invoice_id": "INV-1"}), Say("Please look it up.")])
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    await stage.telegram.press(prompt, "Confirm", ana)
    await stage.business.reached.wait()
    await stage.kill()
    stage.business.hold_before = stage.business.hold_after = False
    await stage.start(bot=BOT)
    await stage.until(lambda: any("may or may not have happened" in text for text in stage.texts(ana)))
    await stage.until(lambda: "Please look it up." in stage.texts(ana))
    assert len(stage.business.done) == (1 if when == "after" else 0)


async def test_killed_in_an_allowed_call_the_model_is_told_unknown(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.business.hold_after = True
    stage.model.script([Call("shop_note", {"invoice_id": "INV-1"}), Say("I do not know whether it is noted.")])
    await stage.telegram.person_says(ana, ana, "note INV-1")
    await stage.business.reached.wait()
    await stage.kill()
    stage.business.hold_after = False
    await stage.start(bot=BOT)
    await stage.until(lambda: stage.texts(ana) == ["I do not know whether it is noted."])
    assert len(stage.business.done) == 1
    assert "unknown" in stage.model.requests[-1]["messages"][-1]["content"]
