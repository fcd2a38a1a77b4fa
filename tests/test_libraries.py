"""Libraries missing, too old or in the way: each start names the library, and the one to install."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from channels import AskfirstError
from channels.catalogue import lacking, load
from channels.telegram.api import BotApi
from gateway import Agent, ChannelAgent
from gateway.app import Gateway
from gateway.assembly import open_store
from gateway.config.settings import Settings
from gateway.testing import ScriptedProvider
from tests.fakes.telegram import FakeTelegram

ROOT = Path(__file__).parent.parent


def test_django_channels_over_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "channels").mkdir()
    (tmp_path / "channels" / "__init__.py").write_text('__version__ = "4.3.2"\n', encoding="utf-8")
    (tmp_path / "gateway").symlink_to(ROOT / "gateway")
    done = subprocess.run(
        [sys.executable, "-c", "import gateway"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "is not Askfirst's: Django Channels has the same name. Install Askfirst in an environment" in done.stderr


def test_missing_package_is_told_apart_from_another_version() -> None:
    absent = ModuleNotFoundError("No module named 'nowhere_to_be_found'", name="nowhere_to_be_found")
    assert lacking("slack", absent, "slack") == (
        "slack needs the package nowhere_to_be_found, which is not installed: pip install 'askfirst[slack]'"
    )
    for older in (
        ModuleNotFoundError("No module named 'redis.maint_notifications'", name="redis.maint_notifications"),
        ImportError("cannot import name 'HMAC_SHA1' from 'redis'", name="redis"),
    ):
        assert lacking("ASKFIRST_STORE", older, "redis") == (
            "ASKFIRST_STORE needs another version of the package redis than the one that is installed: "
            "pip install --upgrade 'askfirst[redis]'"
        )


def test_an_older_library_of_a_channel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import telegram

    monkeypatch.delattr(telegram, "Bot")
    for name in [name for name in sys.modules if name.startswith("channels.telegram")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(AskfirstError, match="telegram needs another version of the package telegram"):
        load("telegram")


def test_an_older_redis_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import redis.asyncio

    monkeypatch.delattr(redis.asyncio, "BlockingConnectionPool")
    for name in [name for name in sys.modules if name.startswith("gateway.store.redis")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(AskfirstError, match="ASKFIRST_STORE needs another version of the package redis"):
        open_store("redis://127.0.0.1:1")


async def test_unfit_library_is_not_told_as_an_unreachable_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeTelegram() as telegram:
        settings = Settings(
            store=f"sqlite:///{tmp_path}/askfirst.db",
            allow="*",
            telegram_bot_token=telegram.token,
            telegram_api_url=telegram.url,
        )
        bot = ChannelAgent(Agent(provider=ScriptedProvider([])))
        gateway = await asyncio.to_thread(Gateway, bot, settings)
        async with aiohttp.ClientSession() as http:
            monkeypatch.delattr(type(BotApi(http, telegram.url, telegram.token)._bot), "do_api_request")
        with pytest.raises(AskfirstError, match=r"telegram does not fit an installed library \(AttributeError"):
            async with gateway:
                raise AssertionError("it has started")
