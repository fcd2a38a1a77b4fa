"""``askfirst tools``: what each tool may do by itself."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import here
from tests.cli.processes import askfirst

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
