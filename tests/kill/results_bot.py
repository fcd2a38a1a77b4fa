"""The bot killed while a result is shortened, a reply cached, or a further turn planned."""

from __future__ import annotations

from gateway import Agent, AgentConfig, ChannelAgent, StoreCache, ToolConfig, ToolContext, tool


@tool(read_only=True)
async def read_rows() -> str:
    """Read all rows."""
    return "row; " * 1000


@tool(read_only=True)
async def watch(order: str, ctx: ToolContext) -> str:
    """Watch an order."""
    ctx.follow_up(f"Look up {order} again.")
    return "it is on its way"


config = AgentConfig(cache=StoreCache(default_ttl_seconds=3600), tool=ToolConfig(compress_results=True))
bot = ChannelAgent(Agent([read_rows, watch], provider="openai:test-model", config=config))
