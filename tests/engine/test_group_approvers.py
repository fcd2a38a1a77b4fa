"""Approvers in the group of the question, without a place on the allow-list: let in for their vote alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.places import opened

pytestmark = pytest.mark.both_stores

ANA, BEN = "telegram:7000001:1001", "telegram:7000001:1002"
EVA, DAN = "slack:T0TEAM:U0001", "slack:T0TEAM:U0003"


async def people() -> list[str]:
    """Name the approvers at each question: the start of the gateway cannot check these."""
    return [BEN, DAN]


@pytest.mark.parametrize("way", ["press", "code", "reply", "no"])
async def test_telegram_approver_votes_in_the_group(tmp_path: Path, way: str) -> None:
    async with opened(tmp_path, allow=[ANA, EVA], people=people) as world:
        await world.says("delete 42", chat=world.group, mentions=True)
        shown = world.prompt(world.group)
        asked = len(world.invoices.model.requests)
        await world.says("hello", chat=world.group, by=world.ben, mentions=True)
        await world.says("OK ZZZ9", chat=world.group, by=world.ben)
        if way == "press":
            await world.presses(shown, by=world.ben)
        elif way == "reply":
            await world.says("yes", chat=world.group, by=world.ben, reply_to=shown)
        else:
            word = "NO" if way == "no" else "OK"
            await world.says(f"{word} {world.code(shown.text)}", chat=world.group, by=world.ben)
        assert world.invoices.deleted == ([] if way == "no" else ["42"])
        await world.says("hello", chat=world.group, by=world.ben, mentions=True)
        assert len(world.invoices.model.requests) == asked, "the vote alone is let in"


@pytest.mark.parametrize("way", ["press", "code", "reply", "no"])
async def test_slack_approver_votes_in_the_channel(tmp_path: Path, way: str) -> None:
    async with opened(tmp_path, allow=[ANA, EVA], people=people) as world:
        ts = await world.writes("delete 42")
        shown = world.slack.last(world.channel, button="Confirm")
        assert shown is not None
        asked = len(world.invoices.model.requests)
        await world.writes("hello", by=world.dan, thread=ts)
        if way == "press":
            await world.presses(shown, by=world.dan)
        else:
            word = "yes" if way == "reply" else f"{'NO' if way == 'no' else 'OK'} {world.code(shown.text)}"
            await world.slack.says(world.dan, world.channel, word, thread=ts)
            await world.quiet()
        if way == "reply":
            assert world.invoices.deleted == [], "a reply in a thread names no question for sure"
            return
        assert world.invoices.deleted == ([] if way == "no" else ["42"])
        assert len(world.invoices.model.requests) == asked


async def test_another_stranger_in_the_group_is_turned_away(tmp_path: Path) -> None:
    async with opened(tmp_path, allow=[ANA, EVA], people=people) as world:
        cleo = world.telegram.person("Cleo")
        await world.says("delete 42", chat=world.group, mentions=True)
        shown = world.prompt(world.group)
        assert await world.presses(shown, by=cleo) == "This is not yours to answer."
        await world.says(f"OK {world.code(shown.text)}", chat=world.group, by=cleo)
        assert world.invoices.deleted == []
