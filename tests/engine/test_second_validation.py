"""The tool's own checks see an effect's arguments a second time and must leave them as they are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from gateway import Agent, ChannelAgent, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools.escape import legible, plain, shown


async def test_a_check_that_changes_its_value_each_time_is_not_asked() -> None:
    paid: list[int] = []

    @tool(confirm="Pay {cents} cents?")
    def pay(cents: Annotated[int, AfterValidator(lambda euros: euros * 100)]) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    script = ScriptedProvider([ToolCall("pay", {"cents": 5}), "No."])
    async with ChatDriver(ChannelAgent(Agent(tools=[pay])), provider=script) as chat:
        await chat.says("ana", "pay 5 euros")
        if chat.last.buttons:
            assert "Pay 500 cents" in chat.last.text
            await chat.presses("ana", "Confirm")
        assert paid in ([], [500])


@pytest.mark.parametrize("value", [["א", 5, 7], {"a": ["אבג", 1]}], ids=json.dumps)
def test_right_to_left_text_in_a_list_moves_nothing_around_it(value: Any) -> None:
    for read in (plain(shown(value)), legible(f"Move {shown(value, bare=False)}?")):
        found = read[read.index("\u2068") : read.index("\u2069")]
        assert found.startswith('\u2068"') and found.endswith('"')
