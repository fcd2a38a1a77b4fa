"""``askfirst tools``: what each tool may do by itself."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import here
from tests.cli.processes import askfirst
from tests.mcp.conftest import ROOT

__all__ = ["here"]

BOT = """
from gateway import Agent, ChannelAgent, tool

@tool
async def wipe() -> str:
    "Wipe the disk."
    return "done"

@tool(confirm="Delete {name}?")
async def delete(name: str) -> str:
    "Delete something."
    return "gone"

@tool(read_only=True)
async def look() -> str:
    "Look around."
    return "nothing"

bot = ChannelAgent(Agent([look, delete, wipe], provider="demo"))
"""


async def test_they_are_listed_the_dangerous_ones_first(here: Path) -> None:
    (here / "bot.py").write_text(BOT)
    code, out, err = await askfirst("tools", "bot.py", cwd=here)
    assert (code, out.splitlines()) == (
        0,
        [
            "wipe    runs   it has no confirm=, and is neither read_only nor idempotent",
            "look    runs   read_only",
            "delete  asks   confirm=",
        ],
    )
    assert err.startswith("warning: wipe: runs without asking anybody.")


async def test_json_and_doctor_list_the_unasked_tools_first(here: Path) -> None:
    (here / "bot.py").write_text(BOT)
    code, out, _ = await askfirst("tools", "bot.py", "--json", cwd=here)
    assert code == 0
    first = json.loads(out)[0]
    assert (first["tool"], first["how"], first["unasked"]) == ("wipe", "runs", True)
    _, out, _ = await askfirst("doctor", "bot.py", cwd=here)
    assert "ok    tools: wipe runs, look runs, delete asks" in out
    assert "warn  tools: wipe: runs without asking anybody." in out


MCP_BOT = f"""
import sys
from gateway import Agent, ChannelAgent, MCPServer, ToolPolicy, tool

@tool(name="open_die", read_only=True)
async def die() -> str:
    "Throw one."
    return "3"

command, env = [sys.executable, "-m", "tests.mcp.busy_server"], {{"PYTHONPATH": {str(ROOT)!r}}}
policy = ToolPolicy(allow=["open_look"], deny=["open_fail"])
shut, opened = MCPServer(command=command, env=env), MCPServer(command=command, env=env, prefix="open_", policy=policy)
bot = ChannelAgent(Agent([die, shut, opened], provider="demo"))
"""


async def test_tools_of_mcp_servers_are_listed_with_hints_and_policy(here: Path) -> None:
    (here / "bot.py").write_text(MCP_BOT)
    code, out, err = await askfirst("tools", "bot.py", cwd=here)
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert code == 0 and len(lines) == 18
    assert "open_look runs allow list: 'open_look'; of MCP server open, which says: read-only" in lines
    assert "open_fail never deny list: 'open_fail'; of MCP server open, which says nothing about its effects" in lines
    asks = "asks no policy= of its server allows it; of MCP server"
    assert any(line.startswith(f"open_pay {asks} open") for line in lines)
    assert any(line.startswith(f"look {asks} python") for line in lines)
    assert "open_die runs read_only" in lines
    assert "the tool 'open_die' of MCP server open is left out" in err
    code, out, _ = await askfirst("preview", "bot.py", "open_pay", '{"amount": 3}', cwd=here)
    assert code == 0 and "“open pay”" in out
