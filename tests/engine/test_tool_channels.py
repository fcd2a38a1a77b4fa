"""A tool that is kept off a channel is not offered there, and an earlier question there does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import Agent, ChannelAgent, Tool, ToolContext, tool
from gateway.tools import ToolValidationError
from tests.engine.bots import Model
from tests.engine.rig import rig


def deleting(done: list[str], channels: list[str] | None) -> Tool:
    @tool(confirm="Delete {invoice_id}?", channels=channels)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        done.append(invoice_id)
        return "It is gone."

    return delete_invoice


@tool
async def look_up(invoice_id: str) -> str:
    """Look an invoice up."""
    return invoice_id


async def test_the_model_is_told_of_it_in_its_channels_only(tmp_path: Path) -> None:
    done: list[str] = []
    for channels, offered in ((["slack"], ["look_up"]), (["slack", "test"], ["delete_invoice", "look_up"])):
        model = Model()
        bot = ChannelAgent(Agent([deleting(done, channels), look_up], provider=model))
        async with rig(bot, tmp_path / channels[-1]) as chat:
            await chat.hears("ana", "delete INV-1")
        assert [each.name for each in model.requests[0].tools] == offered
        if channels == ["slack"]:
            assert chat.platform.texts() == ["The tool said: Unknown tool 'delete_invoice'. Available tools: look_up"]
        else:
            assert "Delete" in chat.platform.texts()[0]
    assert done == []


async def test_what_was_asked_before_it_was_kept_off_does_not_run(tmp_path: Path) -> None:
    done: list[str] = []
    free = deleting(done, None)
    async with rig(ChannelAgent(Agent([free], provider=Model())), tmp_path) as chat:
        await chat.hears("ana", "delete INV-1")
        free.channels = frozenset({"slack"})  # as in the release that follows
        code = chat.platform.texts()[0].partition("**OK ")[2][:4]
        await chat.handles("ana", f"OK {code}")
        assert done == []
        assert any("no longer as it was shown" in text for text in chat.platform.texts())


def test_a_conversation_of_ones_own_code_is_of_the_channel_app() -> None:
    assert ToolContext(person="app:-:ana").channel == "app"


@pytest.mark.parametrize("channels", ["slack", []])
def test_channels_are_a_list_of_names(channels: list[str]) -> None:
    with pytest.raises(ToolValidationError, match=r"channels must be a list of names.*Write channels="):
        tool(channels=channels)(look_up.__wrapped__)  # type: ignore[attr-defined]
