"""The bot killed during the work of an MCP server in a separate process."""

from __future__ import annotations

import json
import os

from gateway import Agent, ChannelAgent, MCPServer, ToolPolicy

business = MCPServer(
    command=json.loads(os.environ["BUSINESS_SERVER"]),
    env={"BUSINESS_URL": os.environ.get("BUSINESS_URL", "")},
    prefix="shop_",
    policy=ToolPolicy(allow=["shop_note"]),
)
bot = ChannelAgent(Agent([business], provider="openai:test-model"))
