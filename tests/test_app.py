"""The places of a gateway's files, and the files left alone."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from channels import AskfirstError
from gateway import Agent, ChannelAgent, Gateway, Settings, tool

REDIS = "redis://:password@127.0.0.1:6379"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_redis_without_a_shared_secret_is_refused(here: Path) -> None:
    with pytest.raises(AskfirstError, match="On Redis set ASKFIRST_SECRET and ASKFIRST_ARTIFACTS") as refused:
        Gateway(ChannelAgent(Agent()), Settings(store=REDIS))
    assert "password" not in str(refused.value)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("store", [None, "sqlite:///:memory:"])
async def test_a_bot_in_memory_writes_no_file_here(here: Path, store: str | None) -> None:
    async with ChannelAgent(Agent(provider="demo"), store=store) as bot:
        await bot.ask_channel("ana", "hello")
    assert list(here.iterdir()) == []


async def test_secret_is_kept_beside_the_store_for_its_owner_alone(here: Path) -> None:
    for _ in range(2):
        async with ChannelAgent(Agent(provider="demo"), store="sqlite:///kept/bot.db") as bot:
            await bot.ask_channel("ana", "hello")
    secret = here / "kept" / "bot.db.secret"
    assert (len(secret.read_text()), secret.stat().st_mode & 0o777) == (43, 0o600)


async def test_the_console_shows_which_tools_run_and_which_ask(tmp_path: Path) -> None:
    @tool(confirm=True)
    async def wipe() -> None:
        """Wipe the disk."""

    bot = ChannelAgent(Agent([wipe], provider="demo"))
    settings = Settings(store=f"sqlite:///{tmp_path / 'askfirst.db'}")
    async with (
        await asyncio.to_thread(Gateway, bot, settings, chat=True, console=True) as gateway,
        contextlib.aclosing(gateway.feed.subscribe()) as notices,
    ):
        first = await anext(notices)
    assert (first.name, first.fields) == (
        "tool_listed",
        {"tool": "wipe", "how": "asks", "why": "confirm=", "unasked": False},
    )
