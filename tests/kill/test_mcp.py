"""SIGKILL at every step of a call of an MCP server's tool: the call is made once, and a doubt is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage
from tests.mcp.prepared import Host

pytestmark = [pytest.mark.timeout(180), pytest.mark.parametrize("stage", ["sqlite"], indirect=True)]

BOT = Path(__file__).with_name("mcp_bot.py")
SERVER = Path(__file__).with_name("mcp_server.py")


@pytest.fixture(autouse=True)
def business_server(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSINESS_SERVER", json.dumps(host.command(SERVER)))


async def test_tool_is_called_once_after_a_kill_before_the_yes(stage: Stage) -> None:
    prompt = await stage.asks("shop_pay", Say("It is paid."))
    await stage.restart()
    await stage.press(prompt)
    await stage.until(lambda: "It is paid." in stage.texts())
    assert stage.business.done == [("pay", "INV-1", "mcp")]
    assert "pay INV-1 ok" in str(stage.model.requests[-1]["messages"])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_kill_in_a_confirmed_call_leaves_it_unknown(stage: Stage, when: str) -> None:
    await stage.dies_in_effect(when, await stage.asks("shop_pay", Say("Please look it up.")))
    await stage.until(lambda: any("may or may not have happened" in text for text in stage.texts()))
    await stage.until(lambda: "Please look it up." in stage.texts())
    assert len(stage.business.done) == (1 if when == "after" else 0)


async def test_killed_in_an_allowed_call_the_model_is_told_unknown(stage: Stage) -> None:
    await stage.says("note it", Call("shop_note", {"invoice_id": "INV-1"}), Say("I do not know whether it is noted."))
    await stage.dies_in_effect("after")
    await stage.until(lambda: stage.texts() == ["I do not know whether it is noted."])
    assert len(stage.business.done) == 1
    assert "unknown" in stage.model.requests[-1]["messages"][-1]["content"]
