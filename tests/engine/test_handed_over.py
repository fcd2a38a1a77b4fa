"""In a chat: an agent hands a task over to another, whose tools ask the person of that chat."""

from __future__ import annotations

import pytest

from gateway import Agent, ChannelAgent, ToolContext, ToolPolicy, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall

pytestmark = pytest.mark.both_stores

RAN: list[str] = []


@tool(confirm="Refund order {order}?")
async def refund(order: str, ctx: ToolContext) -> str:
    """Refund an order."""
    RAN.append(order)
    ctx.emit_artifact(content=b"note", filename="note.txt")
    return f"Order {order} is refunded."


def bot(model: ScriptedProvider, policy: ToolPolicy | None = None) -> ChannelAgent:
    accountant = Agent([refund], provider=model, policy=policy)
    return ChannelAgent(Agent([accountant.as_tool("ask_accountant", "Ask the accountant about money.")]))


async def test_a_confirmed_action_of_the_inner_agent_runs_once() -> None:
    RAN.clear()
    accountant = ScriptedProvider([ToolCall("refund", {"order": "A-1"})])
    front = ScriptedProvider([ToolCall("ask_accountant", {"task": "Refund A-1."}), "Anything else?"])
    async with ChatDriver(bot(accountant), provider=front) as chat:
        await chat.says("ana", "refund A-1")
        assert "Refund order “A\\-1”?" in chat.last.text
        assert RAN == []
        await chat.presses("ben", "Confirm")
        assert RAN == [], "another person's press decides nothing"
        await chat.presses("ana", "Confirm")
        assert RAN == ["A-1"]
        assert "Order A-1 is refunded." in [message.text for message in chat.messages]
        assert chat.last.artifacts[0].filename == "note.txt"
        await chat.says("ana", "thanks")
        told = [message.content for message in front.requests[-1].messages if message.role == "event"]
        assert any("refund" in each and "done" in each for each in told)


async def test_policy_of_the_inner_agent_is_asked_again_at_the_launch() -> None:
    RAN.clear()
    policy = ToolPolicy(allow=["*"])
    accountant = ScriptedProvider([ToolCall("refund", {"order": "A-1"})])
    front = ScriptedProvider([ToolCall("ask_accountant", {"task": "Refund A-1."})])
    chatting = bot(accountant, policy)
    async with ChatDriver(chatting, provider=front) as chat:
        await chat.says("ana", "refund A-1")
        assert chatting.agent.reach["refund"].policy is policy
        policy.deny = ("refund",)
        await chat.presses("ana", "Confirm")
        assert RAN == []


async def test_the_providers_of_both_agents_are_closed() -> None:
    closed: list[str] = []

    class Closing(ScriptedProvider):
        def __init__(self, name: str) -> None:
            super().__init__([])
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

    inner = Agent([refund], provider=Closing("inner"))
    async with ChannelAgent(
        Agent([inner.as_tool("ask", "Ask.")], provider=Closing("outer")), store="sqlite:///:memory:"
    ):
        assert closed == []
    assert sorted(closed) == ["inner", "outer"]
