"""The store's records with unknown values read as a refusal: nothing runs, is sent again or is taken for done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels import Ambiguous, AskfirstError, DeliveryReport, Json, OptedOut, Unreachable
from gateway.engine.calls import Calls
from gateway.engine.event_bodies import received_body
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key
from gateway.tools import PendingAction
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, rig

CHAT = "agent/test:bot:ana"
UNKNOWN: list[Json] = ["newer", 7, True, [], {}, {"state": "newer"}]


@pytest.fixture
async def chat(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    async with rig(invoices.bot(), tmp_path, opt_out=True, reports=True) as chat:
        yield chat


async def overwrite(chat: Rig, name: str, value: Json) -> None:
    key = Key(chat.store.partition(CHAT), f"{name}/{CHAT}")
    await chat.store.commit(Transaction(partition=key.partition, puts={key.name: Put(value)}))


async def notify(chat: Rig) -> None:
    await chat.notify("news")


async def asked(chat: Rig) -> PendingAction:
    await chat.hears("ana", "delete INV-1")
    (action,) = (await chat.worker.context.actions(CHAT)).open
    return action


@pytest.mark.parametrize("value", UNKNOWN, ids=str)
async def test_an_unknown_opt_out_silences(chat: Rig, value: Json) -> None:
    await notify(chat)
    await overwrite(chat, "opted_out", value)
    await chat.turns()
    assert chat.platform.texts() == []
    assert await chat.dead() == ["not sent: they have opted out"]
    with pytest.raises(OptedOut):
        await notify(chat)


@pytest.mark.parametrize("value", UNKNOWN, ids=str)
async def test_an_unknown_reason_is_still_out_of_reach(chat: Rig, value: Json) -> None:
    await overwrite(chat, "unreachable", value)
    with pytest.raises(Unreachable, match="unknown"):
        await notify(chat)


@pytest.mark.parametrize("value", UNKNOWN, ids=str)
async def test_an_unknown_doubt_is_not_sent_again(chat: Rig, value: Json) -> None:
    chat.platform.will = [Ambiguous("timeout")]
    await notify(chat)
    await chat.turns()
    (part,) = await chat.store.outbox(CHAT)
    await overwrite(chat, f"doubt/{part.part_id}", value)
    await chat.later(60)
    assert chat.platform.texts() == []
    assert await chat.dead() == ["it may have been sent"]


@pytest.mark.parametrize("value", UNKNOWN, ids=str)
async def test_an_unknown_report_does_not_hide_the_next(chat: Rig, invoices: Invoices, value: Json) -> None:
    action = await asked(chat)
    await overwrite(chat, f"message/{action.prompts[0]}", value)
    report = DeliveryReport(
        event_ids=("report",), address=here("ana"), person=None, message_id=action.prompts[0], status="failed"
    )
    await chat.take(report)
    ended = (await chat.worker.context.actions(CHAT, action.pending_action_id)).get(action.pending_action_id)
    assert ended is not None and (ended.state, ended.reason) == ("closed", "undelivered")


@pytest.mark.parametrize("value", [*UNKNOWN, {"stop_reason": "approved"}], ids=str)
async def test_an_unknown_word_about_a_turn_is_an_error(chat: Rig, value: Json) -> None:
    await overwrite(chat, "word/app/1", value)
    async with Calls(chat.worker.context).begin(CHAT) as call:
        await call.read_posted_result("app/1")
        with pytest.raises(AskfirstError, match="cannot be read"):
            await call.result()


@pytest.mark.parametrize("kind", ["approve", "confirmed", "Settled", 7, None], ids=str)
async def test_an_unknown_kind_of_decision_is_put_aside(chat: Rig, invoices: Invoices, kind: Json) -> None:
    action = await asked(chat)
    body: dict[str, Json] = {
        "kind": kind, "action_id": action.pending_action_id, "intent": "confirm", "person": action.requester
    }  # fmt: skip
    sealed = received_body(chat.worker.context.keyring, CHAT, body, await chat.store.now())
    await chat.store.accept([Incoming(conversation=CHAT, event_ids=("forged",), body=sealed, decides=True)])
    await chat.worker.engine.due()
    (letter,) = await chat.store.dead_letters()
    assert "cannot be worked" in letter.reason
    assert [open.code for open in (await chat.worker.context.actions(CHAT)).open] == [action.code]
    assert invoices.deleted == []
