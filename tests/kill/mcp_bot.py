"""The bot whose process is killed while its MCP server, a process of its own, works."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gateway import Agent, ChannelAgent, MCPServer, ToolPolicy

business = MCPServer(
    command=[sys.executable, str(Path(__file__).with_name("mcp_server.py"))],
    env={"BUSINESS_URL": os.environ.get("BUSINESS_URL", "")},
    prefix="shop_",
    policy=ToolPolicy(allow=["shop_note"]),
)
bot = ChannelAgent(Agent([business], provider="openai:test-model"))
