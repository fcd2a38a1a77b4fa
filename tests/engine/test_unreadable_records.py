"""A stored record that cannot be read fails its own turn, which ends as other failures do; no other turn waits."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gateway import Agent, ChannelAgent
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Moment
from gateway.store.types import Key
from gateway.testing import ScriptedProvider
from tests.engine.rig import Rig, here, rig

pytestmark = pytest.mark.parametrize("kept_on", ["sqlite"], indirect=True)


async def spoil(chat: Rig, table: str, name: str) -> None:
    """Whatever is of this name in Ana's conversation is no JSON any more."""
    conversation = chat.worker.context.conversation(here("ana"))
    key = Key(chat.store.partition(conversation), f"{name}/{conversation}")

    def write(db: sqlite3.Connection, at: Moment) -> None:
        if table == "record":
            db.execute("INSERT OR REPLACE INTO record (name, version, value) VALUES (?, 1, '{')", (key.name,))
        else:
            db.execute("UPDATE log SET value = '{' WHERE log = ?", (key.name,))

    assert isinstance(chat.store, SqliteStore)
    await chat.store._writer.submit(write)


@pytest.mark.parametrize(("table", "name"), [("log", "transcript"), ("record", "open")])
async def test_a_turn_that_cannot_be_read_is_put_aside_and_told(tmp_path: Path, table: str, name: str) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana.", "Hello Bob."])))
    async with rig(bot, tmp_path) as chat:
        await chat.hears("ana", "hi")
        await spoil(chat, table, name)
        await chat.says("ana", "and now?")
        await chat.says("bob", "hi")
        await chat.retries(4, every=10)
        assert chat.platform.texts("bob") == ["Hello Bob."]
        assert [dead.reason for dead in await chat.store.dead_letters()] == ["its turn failed again and again"]
        assert chat.platform.texts()[0] == "Hello Ana."
        assert "went wrong" in chat.platform.texts()[1]


async def test_an_outbox_whose_receipts_cannot_be_read_is_sent(tmp_path: Path) -> None:
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana."]))), tmp_path) as chat:
        await spoil(chat, "record", "receipts")
        await chat.hears("ana", "hi")
        assert chat.platform.texts() == ["Hello Ana."]
