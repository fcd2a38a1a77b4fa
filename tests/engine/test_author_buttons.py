"""The gateway refuses a reply with buttons of the author's own where the reply is made, as no code handles them yet."""

from __future__ import annotations

import logging
import warnings
from typing import Any, cast

import pytest

from channels import Button, Media
from gateway import Agent, ChannelAgent, Reply, ToolContext
from gateway.options import WrongOption
from gateway.testing import ChatDriver, ScriptedProvider

WITH_BUTTONS = Reply(text="Which one?", buttons=(Button(label="This one", token="t"),))
SAYS = "there are no handlers for them yet"


def asking() -> ChannelAgent:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])))

    @bot.command("which")
    async def which(ctx: ToolContext, text: str) -> Reply:
        """Ask."""
        return WITH_BUTTONS

    return bot


async def test_command_reply_with_own_buttons_is_an_error() -> None:
    async with asking() as bot:
        with pytest.raises(WrongOption, match=SAYS):
            await bot.ask_channel("ana", "/which")


async def test_own_buttons_on_a_platform_are_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async with ChatDriver(asking()) as chat:
        with caplog.at_level(logging.ERROR, "askfirst.turns"):
            await chat.says("ana", "/which")
            assert chat.messages == []
    assert SAYS in caplog.text
    assert "This one" not in caplog.text, "a label may be a person's words"


async def test_notify_refuses_own_buttons() -> None:
    async with ChatDriver(asking()) as chat:
        with pytest.raises(WrongOption, match=SAYS):
            await chat.bot.notify("test:bot:ana", WITH_BUTTONS)
        with pytest.raises(WrongOption, match=SAYS):
            await chat.bot.notify("test:bot:ana", WITH_BUTTONS, after_seconds=60)


def test_a_greeting_is_a_text() -> None:
    with pytest.raises(WrongOption, match="greeting should be a valid string"):
        ChannelAgent(Agent(), greeting=cast("Any", WITH_BUTTONS))


async def test_lists_are_taken_without_a_warning() -> None:
    media = Media(sha256="0" * 64, mime_type="text/plain", filename="a.txt", size=1)
    lists: dict[str, Any] = {"buttons": [], "media": [media]}
    assert Reply(text="Hello", **lists).media == (media,)
    async with ChatDriver(asking()) as chat:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await chat.bot.notify("test:bot:ana", Reply(text="Hello", buttons=cast("Any", [])), after_seconds=60)
            await chat.clock.advance(61)
        assert [message.text for message in chat.messages] == ["Hello"]
