"""`/receipts`: what became of the last requests of a person."""

from __future__ import annotations

import re
from typing import Any

from gateway import ChannelAgent
from tests.engine.bots import Invoices

AT = re.compile(r"[A-Z][a-z]{2} \d{1,2}, \d\d:\d\d UTC: ")


async def decided(bot: ChannelAgent, invoice: str, intent: Any, person: str = "ana", **place: str) -> None:
    (action,) = (await bot.ask_channel(person, f"delete {invoice}", **place)).pending  # type: ignore[arg-type]
    await bot.decide(f"app:-:{person}", intent, action_id=action.pending_action_id)


async def receipts(bot: ChannelAgent, person: str = "ana", **place: str) -> list[str]:
    told = await bot.ask_channel(person, "/receipts", **place)  # type: ignore[arg-type]
    return told.content.replace("\N{NO-BREAK SPACE}", " ").replace("\\", "").splitlines()


async def test_outcomes_are_listed_the_last_one_first(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        assert await receipts(bot) == ["Nothing has been decided here yet."]
        await decided(bot, "INV-1", "confirm")
        await decided(bot, "INV-2", "cancel")
        invoices.error = RuntimeError("the secret of the tool")
        await decided(bot, "INV-3", "confirm")
        await bot.ask_channel("ana", "delete INV-4")
        head, blank, *lines = await receipts(bot)
    assert (head, blank) == ("The last outcomes:", "")
    assert all(AT.search(line) for line in lines)
    assert [re.sub(r"\d\d:\d\d UTC\.", "14:02.", AT.sub("", line)) for line in lines] == [
        "- **Delete invoice “INV-3” for good** ❌ Confirmed by `app:-:ana`, failed 14:02.",
        "- **Delete invoice “INV-2” for good** 🚫 Not done, said `app:-:ana`.",
        "- **Delete invoice “INV-1” for good** ✅ Confirmed by `app:-:ana`, done 14:02.",
    ]


async def test_ten_outcomes_are_listed(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        for number in range(12):
            await decided(bot, f"INV-{number}", "confirm")
        lines = await receipts(bot)
    assert ["INV-11”" in lines[2], "INV-2”" in lines[-1], len(lines)] == [True, True, 12]


async def test_nobody_reads_the_outcomes_of_others(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        await decided(bot, "INV-1", "confirm", conversation_id="shared")
        await decided(bot, "INV-2", "confirm", person="bob", conversation_id="shared")
        lines = await receipts(bot, "bob", conversation_id="shared")
        assert ["INV-2" in line for line in lines[2:]] == [True]
        assert await receipts(bot, "eva", conversation_id="shared") == ["Nothing has been decided here yet."]


async def test_they_are_told_in_the_readers_language(invoices: Invoices) -> None:
    async with invoices.bot(language="de") as bot:
        await decided(bot, "INV-1", "cancel")
        lines = await receipts(bot)
    assert lines[0] == "Die letzten Ergebnisse:"
