"""Operators hear at once of an outcome in doubt: by the log, an event and the bot's own callbacks."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any, get_args

import pytest

from channels import Json, Undeliverable, Unreachable
from gateway import ChannelAgent, OutcomeUnknown
from gateway.engine.alarms import _SENTENCES, Why
from gateway.observe.events import DoubtRaised
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Invoices
from tests.engine.rig import Rig


class Operator:
    """Hears of every doubt."""

    def __init__(self, bot: ChannelAgent) -> None:
        self.heard: list[PendingAction] = []
        bot.on_doubt(self.hear)

    async def hear(self, action: PendingAction) -> None:
        self.heard.append(action)


@pytest.fixture
def operator(chat: Rig) -> Operator:
    return Operator(chat.bot)


async def effect(chat: Rig) -> None:
    await chat.worker.engine._actions.run(await chat.worker.lease("action"))
    await chat.worker.context.tasks.ended()


def alarms(chat: Rig, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the raised doubts, each with a line in the log."""
    doubts = chat.worker.told.of_kind(DoubtRaised)
    lines = [record.getMessage() for record in caplog.records if record.name == "askfirst.actions"]
    errors = [line for line in lines if (": " in line and "askfirst" in line) or "seal check failed" in line]
    return [(doubt.why, next(line for line in errors if doubt.action_id in line)) for doubt in doubts]


async def test_an_unknown_outcome_is_told_at_once(
    chat: Rig, operator: Operator, caplog: pytest.LogCaptureFixture, invoices: Invoices
) -> None:
    invoices.error = OutcomeUnknown("password=hunter2")
    await chat.confirms()
    await effect(chat)
    [(why, line)] = alarms(chat, caplog)
    assert why == "unknown"
    assert "askfirst pending settle" in line
    assert "INV-1" not in caplog.text
    assert "hunter2" not in caplog.text
    assert [action.state for action in operator.heard] == ["unknown"]


async def test_a_changed_record_is_told_at_once_and_once(
    chat: Rig, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.hears("ana", "delete INV-1")
    [(key, record)] = await chat.store.scan("action/")
    stored: Any = record.value
    forged = Put({**stored, "seal": "0" * 64})
    await chat.store.commit(Transaction(partition=key.partition, puts={key.name: forged}))
    await chat.hears("ana", "yes")
    await chat.worker.context.tasks.ended()
    [(why, line)] = alarms(chat, caplog)
    assert (why, "seal check failed" in line) == ("forged", True)
    assert [action.detail for action in operator.heard] == ["tampered"]


@pytest.mark.parametrize("error", [Undeliverable("400"), Unreachable("403")], ids=repr)
async def test_an_outcome_that_does_not_arrive_is_told_at_once(
    chat: Rig, operator: Operator, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.confirms()
    await effect(chat)
    chat.platform.will = [error]
    await chat.turns()
    await chat.worker.context.tasks.ended()
    assert [why for why, _ in alarms(chat, caplog)] == ["undeliverable"]
    assert [action.state for action in operator.heard] == ["done"]


async def test_failing_or_hanging_callback_stops_no_other_callback(
    chat: Rig, operator: Operator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, invoices: Invoices
) -> None:
    monkeypatch.setattr("gateway.channel_agent._CALLBACK_SECONDS", 0.01)
    invoices.error = OutcomeUnknown("hm")

    async def hang(action: PendingAction) -> None:
        await asyncio.Event().wait()

    async def fail(action: PendingAction) -> None:
        raise ValueError("hunter2")

    chat.bot.on_doubt(hang)
    chat.bot.on_doubt(fail)
    await chat.confirms()
    await effect(chat)
    assert len(operator.heard) == 1
    assert re.search(r"an on_doubt callback failed: ValueError \(test_alarms\.py:\d+ fail\)", caplog.text)
    assert "hunter2" not in caplog.text


async def test_a_sync_callback_is_called_beside_the_loop(chat: Rig, invoices: Invoices) -> None:
    invoices.error = OutcomeUnknown("hm")
    heard: list[tuple[str, bool]] = []
    chat.bot.on_doubt(
        lambda action: heard.append((action.state, threading.current_thread() is threading.main_thread()))
    )
    await chat.confirms()
    await effect(chat)
    assert heard == [("unknown", False)]


@pytest.mark.usefixtures("nobody_waits_long")
async def test_doubt_is_told_after_a_commit_without_an_answer(
    chat: Rig, operator: Operator, caplog: pytest.LogCaptureFixture, invoices: Invoices
) -> None:
    invoices.hold, invoices.error = asyncio.Event(), OutcomeUnknown("hm")
    await chat.confirms()
    running = asyncio.create_task(effect(chat))
    await invoices.running.wait()
    chat.wire.lost_answers["commit"] = 1
    invoices.hold.set()
    await running
    assert [why for why, _ in alarms(chat, caplog)] == ["unknown"]
    assert [action.state for action in operator.heard] == ["unknown"]


async def test_outcome_for_a_channel_that_is_off_is_told_at_once(
    chat: Rig, operator: Operator, caplog: pytest.LogCaptureFixture, invoices: Invoices
) -> None:
    invoices.hold = asyncio.Event()
    await chat.confirms()
    running = asyncio.create_task(effect(chat))
    await invoices.running.wait()
    chat.worker.context.channels = {}
    invoices.hold.set()
    await running
    assert [why for why, _ in alarms(chat, caplog)] == ["undeliverable"]
    assert [action.state for action in operator.heard] == ["done"]


async def test_an_event_made_without_the_key_is_told_at_once(chat: Rig) -> None:
    body: dict[str, Json] = {"kind": "expiry", "event_id": "e", "action_id": "a"}
    forged = Incoming(conversation="agent/test:bot:ana", event_ids=("e",), body=body, decides=True)
    await chat.store.accept([forged])
    await chat.worker.decisions.sweep(0)
    doubts = chat.worker.told.of_kind(DoubtRaised)
    assert [(doubt.conversation, doubt.why) for doubt in doubts] == [("agent/test:bot:ana", "forged")]


def test_every_reason_has_its_sentence() -> None:
    assert set(_SENTENCES) == set(get_args(Why))
