"""Data kept for as long as the operator wants is removed, by one process of a store, a day at a time."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Literal, cast

import pytest

from gateway.config.limits import Retention
from gateway.config.settings import EngineRules
from gateway.engine import reply_limits
from gateway.operations.audit import AuditCommands
from gateway.privacy import expiry as expiring
from gateway.privacy.expiry import Expiry
from gateway.store.base import Store
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, Key
from gateway.stored import keys
from gateway.testing.doubles import LostCall
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here

pytestmark = pytest.mark.both_stores

DAY = 86_400.0


async def sweep(chat: Rig, **days: int) -> bool:
    """Sweep as a process of the store does."""
    return await Expiry(chat.store, Retention(**days)).run(await chat.store.now())


async def sweep_by_wire(chat: Rig, **days: int) -> bool:
    """Sweep as the process of the rig, which a test can kill."""
    return await Expiry(cast("Store", chat.wire), Retention(**days)).run(await chat.store.now())


async def says(chat: Rig, person: str, text: str) -> None:
    await chat.handles(person, text)


async def lines(chat: Rig, person: str, name: Any = keys.transcript) -> int:
    key = keys.key(chat.store, chat.worker.context.conversation(here(person)), name)
    return len(await chat.store.read(key))


async def begun(chat: Rig, **days: int) -> None:
    """Do the first sweep."""
    await chat.advance(DAY)
    assert await sweep(chat, **days)


async def verified(chat: Rig) -> dict[str, Any]:
    context = chat.worker.context
    return await AuditCommands(chat.store, context.channels, context.keyring, bot=None).verify_audit()


@pytest.mark.ledger("MEM-09")
async def test_transcript_is_gone_some_days_after_its_last_line(chat: Rig, invoices: Invoices) -> None:
    await begun(chat)
    await says(chat, "ana", "hello")
    await says(chat, "bob", "hello")
    await chat.advance(20 * DAY)
    await says(chat, "bob", "still here")
    assert (await lines(chat, "ana"), await lines(chat, "bob")) == (2, 4)
    await chat.advance(9.5 * DAY)
    assert await sweep(chat, transcript=30, visible=30)
    assert (await lines(chat, "ana"), await lines(chat, "bob")) == (2, 4)
    await chat.advance(DAY)
    assert await sweep(chat, transcript=30)
    assert (await lines(chat, "ana"), await lines(chat, "bob")) == (0, 2)
    await says(chat, "ana", "who am I?")
    assert [message.content for message in invoices.model.requests[-1].messages][-1:] == ["who am I?"]
    assert "hello" not in str(invoices.model.requests[-1].messages)


async def test_each_kind_of_log_has_its_own_days(chat: Rig) -> None:
    await begun(chat)
    await says(chat, "ana", "hello")
    seen = await lines(chat, "ana", keys.visible_log)
    await chat.advance(11 * DAY)
    assert await sweep(chat, transcript=10, visible=20)
    assert (await lines(chat, "ana"), await lines(chat, "ana", keys.visible_log)) == (0, seen)
    await chat.advance(10 * DAY)
    assert await sweep(chat, transcript=10, visible=20)
    assert await lines(chat, "ana", keys.visible_log) == 0


async def test_result_of_an_expired_call_is_read_by_no_model(chat: Rig, invoices: Invoices) -> None:
    await begun(chat)
    await says(chat, "ana", "delete INV-1")
    await chat.advance(5 * DAY)
    await says(chat, "ana", "hello")
    for kept in range(1, 6):
        await chat.advance(DAY)
        await sweep(chat, transcript=kept)
        await says(chat, "ana", "hello again")
        first = invoices.model.requests[-1].messages[0]
        assert first.role in ("user", "event"), first


async def test_long_log_is_removed_page_by_page(chat: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "_PAGE", 3)
    await begun(chat)
    for number in range(5):
        await says(chat, "ana", f"old {number}")
    await chat.advance(2 * DAY)
    await says(chat, "ana", "new")
    chat.wire.calls.clear()
    assert await sweep_by_wire(chat, transcript=1)
    assert await lines(chat, "ana") == 2
    assert chat.wire.calls["commit"] == 2 + 4, "the day's two marks, and three lines at a time"


async def test_one_process_of_several_sweeps(chat: Rig) -> None:
    await begun(chat)
    await chat.advance(DAY)
    assert sorted(await asyncio.gather(*(sweep(chat) for _ in range(5)))) == [False] * 4 + [True]


async def test_sweep_that_is_killed_anywhere_is_done_by_another(chat: Rig) -> None:
    await begun(chat)
    for calls in (*range(1, 12), *range(12, 100, 9)):  # first each call, then the many of the partitions
        for person in ("ana", "bob"):
            await says(chat, person, f"hello {calls}")
        await chat.advance(3 * DAY)
        chat.wire.calls_left = calls
        try:
            await sweep_by_wire(chat, transcript=1)
            alive = not chat.wire.is_cut
        except LostCall:
            alive = False
        chat.wire.calls_left = None
        if alive:
            assert calls > 10
            assert await lines(chat, "ana") == await lines(chat, "bob") == 0
            return
        await chat.advance(3601)
        await sweep(chat, transcript=1)
        assert await lines(chat, "ana") == await lines(chat, "bob") == 0
    raise AssertionError("no sweep came to its end")


async def test_dead_letters_expire_the_oldest_first(chat: Rig) -> None:
    await begun(chat)
    for number in range(4):
        letter = Dead(dead_id=f"d{number}", conversation="c", reason="r")
        await chat.store.commit(Transaction(partition=chat.store.partition("c"), dead=[letter]))
        await chat.advance(DAY)
    assert await sweep(chat, dead_letters=3)
    assert [letter.dead_id for letter in await chat.store.dead_letters()] == ["d2", "d3"]


async def test_security_log_has_its_last_lines_only(chat: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_limits, "SECURITY_LINES", 5)
    log = Key(chat.store.partition("c"), keys.SECURITY)
    for number in range(12):
        transaction = Transaction(partition=log.partition)
        reply_limits.note_refusal(transaction, f"no {number}", None, "c", await chat.store.now())
        await chat.store.commit(transaction)
        assert len(await chat.store.read(log)) == min(number + 1, 5)
    found: list[Any] = [entry.value for entry in await chat.store.read(log)]
    assert [line["what"] for line in found] == [f"no {number}" for number in range(7, 12)]
    await begun(chat)
    await chat.advance(DAY)
    await sweep(chat, security=1)
    assert await chat.store.read(log) == []


async def test_audit_is_whole_after_its_oldest_lines_expired(chat: Rig, invoices: Invoices) -> None:
    await begun(chat)
    await says(chat, "ana", "delete INV-1")
    await says(chat, "ana", "yes")
    await chat.advance(20 * DAY)
    await says(chat, "ana", "delete INV-2")
    assert invoices.deleted == ["INV-1"]
    before = await verified(chat)
    assert (before["actions"], before["faults"]) == (2, {})
    await sweep(chat, audit=1)
    assert await verified(chat) == before, "both actions have a record"
    await chat.advance(15 * DAY)
    await sweep(chat, audit=1)
    after = await verified(chat)
    assert (after["actions"], after["faults"]) == (1, {})
    assert 0 < after["lines"] < before["lines"]
    await chat.advance(60 * DAY)
    await sweep(chat, audit=1)
    assert await verified(chat) == {"lines": 0, "actions": 0, "faults": {}}
    await says(chat, "ana", "delete INV-3")
    assert (await verified(chat))["faults"] == {}


async def test_chain_that_begins_behind_the_expired_lines_is_whole(chat: Rig, invoices: Invoices) -> None:
    await begun(chat)
    await says(chat, "ana", "delete INV-1")
    await chat.advance(120)
    [code] = re.findall(r"OK (\w{4})", chat.platform.texts()[-1])
    await says(chat, "ana", f"OK {code}")
    assert invoices.deleted == ["INV-1"]
    before = await verified(chat)
    await chat.advance(31 * DAY - 60)
    await sweep(chat, audit=31)
    after = await verified(chat)
    assert 0 < after["lines"] < before["lines"]
    assert after["faults"] == {}


@pytest.mark.parametrize("role", ["all", "worker"])
async def test_started_engine_sweeps_with_its_own_retention(chat: Rig, role: Literal["all", "worker"]) -> None:
    await says(chat, "ana", "hello")
    await sweep(chat)
    await chat.advance(2 * DAY)
    context = chat.worker.context
    context.rules = EngineRules(retention=Retention(transcript=1))
    chat.worker.engine.start(role)
    async with asyncio.timeout(60):
        while await lines(chat, "ana"):
            await asyncio.sleep(0.001)
