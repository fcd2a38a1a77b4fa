"""The bot whose process is killed while a call of a tool holds its lock."""

from __future__ import annotations

from gateway import Agent, ChannelAgent, ToolContext, tool
from tests.kill.bot import _call, note


@tool(lock="stock:{item}")
async def reserve(item: str, ctx: ToolContext) -> str:
    """Reserve an item."""
    return await _call("reserve", ctx, item)


bot = ChannelAgent(Agent([reserve, note], provider="openai:test-model"))
