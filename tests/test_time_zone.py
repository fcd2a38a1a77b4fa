"""The time zone of a process is irrelevant: the stored records and the texts are equal."""

from __future__ import annotations

from typing import Any

from tests.children import children
from tests.zoned import tell

ZONES = {
    "UTC": "UTC0",
    "America/Sao_Paulo": "<-03>3",
    "Asia/Kolkata": "IST-5:30",
    "Australia/Lord_Howe": "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
}
"""In the words of tzset(3): no zone files are needed."""


def told(zone: str) -> dict[str, Any]:
    """Return the traces of the story in this zone."""
    told, theirs = children.Pipe(duplex=False)
    child = children.Process(target=tell, args=(ZONES[zone], theirs))
    child.start()
    theirs.close()
    story: dict[str, Any] = told.recv()
    child.join()
    return story


def test_a_story_leaves_the_same_wherever_it_happens() -> None:
    """An action expires while summer time ends in one of the zones, and another action is confirmed."""
    stories = [told(zone) for zone in ZONES]
    assert [story.pop("offset") for story in stories] == [0, -3 * 3600, 5.5 * 3600, 11 * 3600]
    for story in stories[1:]:
        assert story == stories[0]
    texts, asked, ended = (stories[0][part] for part in ("texts", "asked", "ended"))
    assert "You have 15 minutes to answer." in texts[0]
    assert texts[1].startswith("This has expired and nothing was done.")
    assert texts[-1].endswith("Confirmed by Ana, done 15:06 UTC.")
    assert any(row.startswith('timer ["expiry/drawn", 2038-04-03 15:05') for row in asked)
    assert any(row.startswith('log ["audit", 3, 2038-04-03 15:06') and "expired" in row for row in ended)
