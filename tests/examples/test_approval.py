"""examples/approval.py: an order is refunded in a group, after the yes of an entitled person."""

from __future__ import annotations

import pytest

from gateway import ChannelAgent
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.examples.loading import load

REFUND = ToolCall("refund_order", {"order": "a-18"})
MANAGERS = "test:bot:mia,test:bot:max"


async def test_without_managers_the_requester_decides() -> None:
    example = load("approval")
    bot: ChannelAgent = example.bot
    async with ChatDriver(bot, provider=ScriptedProvider([REFUND])) as chat:
        await chat.says("ana", "refund order A-18", group="shop")
        assert all(line in chat.last.text for line in ("Refund order A\\-18?", "Ben", "900 EUR"))
        await chat.presses("ben", "Confirm")
        assert chat.alerts == ["This is not yours to answer."]
        assert "A-18" in example.ORDERS
        await chat.presses("ana", "Confirm")
        assert chat.last.text == "900 EUR go back to Ben."
        assert "A-18" not in example.ORDERS


async def test_managers_decide_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_MANAGERS", MANAGERS)
    example = load("approval")
    async with ChatDriver(example.bot, provider=ScriptedProvider([REFUND])) as chat:
        await chat.says("ana", "refund order A-18", group="shop")
        await chat.presses("ana", "Confirm")
        assert chat.alerts == ["This is not yours to answer."]
        await chat.presses("mia", "Confirm")
        assert "A-18" not in example.ORDERS


async def test_missing_order_reaches_the_model_without_a_prompt() -> None:
    model = ScriptedProvider([ToolCall("refund_order", {"order": "B-1"}), "There is no such order."])
    async with ChatDriver(load("approval").bot, provider=model) as chat:
        await chat.says("ana", "refund order B-1")
        assert (chat.last.text, chat.last.buttons) == ("There is no such order.", [])
        assert "There is no order B-1." in model.requests[-1].messages[-1].content
