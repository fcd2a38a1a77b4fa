"""Where a process runs is no matter: whatever the time zone there, the same is stored and the same is told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ZONES = {
    "UTC": "UTC0",
    "America/Sao_Paulo": "<-03>3",
    "Asia/Kolkata": "IST-5:30",
    "Australia/Lord_Howe": "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
}
"""In tzset(3)'s words, which need no files of zones."""
ROOT = Path(__file__).parents[1]


async def told(zone: str) -> dict[str, Any]:
    """What is left of the story where it is that late."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.zoned"),
        cwd=ROOT,
        env=os.environ | {"TZ": ZONES[zone]},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await child.communicate()
    assert child.returncode == 0
    story: dict[str, Any] = json.loads(said)
    return story


@pytest.mark.timeout(120)
async def test_a_story_leaves_the_same_wherever_it_happens() -> None:
    """An action expires while summer time ends in one of the places, and another is confirmed."""
    stories = await asyncio.gather(*map(told, ZONES))
    assert [story.pop("offset") for story in stories] == [0, -3 * 3600, 5.5 * 3600, 11 * 3600]
    for story in stories[1:]:
        assert story == stories[0]
    texts, asked, ended = (stories[0][part] for part in ("texts", "asked", "ended"))
    assert texts[0].endswith("You have 15 minutes to answer.")
    assert texts[1].startswith("This has expired and nothing was done.")
    assert texts[-1].endswith("Confirmed by Ana, done 15:06 UTC.")
    assert any(row.startswith('timer ["expiry/drawn", 2038-04-03 15:05') for row in asked)
    assert any(row.startswith('log ["audit", 3, 2038-04-03 15:06') and "expired" in row for row in ended)
