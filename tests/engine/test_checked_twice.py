"""An effect gets its arguments through the tool's own checks a second time: that must not make others of them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field

from gateway import Agent, ChannelAgent, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools.escape import legible, plain, shown


class Order(BaseModel):
    cents: int = Field(1, validation_alias="cents", serialization_alias="amount")


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


async def test_a_field_that_is_read_by_another_name_than_it_is_written_is_not_asked() -> None:
    paid: list[int] = []

    @tool(confirm=True)
    def pay(order: Order) -> str:
        """Pay."""
        paid.append(order.cents)
        return "paid"

    script = ScriptedProvider([ToolCall("pay", {"order": {"cents": 500}}), "No."])
    async with ChatDriver(ChannelAgent(Agent(tools=[pay])), provider=script) as chat:
        await chat.says("ana", "pay")
        if chat.last.buttons:
            assert "500" in chat.last.text
            await chat.presses("ana", "Confirm")
        assert paid in ([], [500])


@pytest.mark.parametrize("value", [["א", 5, 7], {"a": ["אבג", 1]}], ids=json.dumps)
def test_a_text_from_right_to_left_moves_nothing_around_it_in_a_list(value: Any) -> None:
    for read in (plain(shown(value)), legible(f"Move {shown(value, bare=False)}?")):
        found = read[read.index("\u2068") : read.index("\u2069")]
        assert found.startswith('\u2068"') and found.endswith('"')
