"""Stored records with unknown values are read as a refusal: no action runs, is sent again or is taken for done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from channels import Ambiguous, AskfirstError, DeliveryReport, Json, OptedOut, Unreachable
from gateway.engine.calls import Calls
from gateway.engine.event_bodies import received_body
from gateway.store import codec
from gateway.store.form import FORM
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Dead, Incoming, Key
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


async def test_event_of_an_unknown_kind_is_put_aside_alone(chat: Rig, invoices: Invoices) -> None:
    """The event is put aside sealed or not, and under every claimed form."""
    bodies: list[dict[str, Json]] = [{"kind": "Unheard"}, {"kind": "Unheard", "form": FORM + 1}]
    for number, body in enumerate(bodies):
        sealed = chat.worker.context.keyring.stamped("event", CHAT, body)
        for event in (body, sealed):
            for decides in (False, True):
                ids = (f"odd {number} {len(event)} {decides}",)
                await chat.store.accept([Incoming(conversation=CHAT, event_ids=ids, body=event, decides=decides)])
    await chat.worker.engine.due()
    await chat.hears("ana", "hello")
    await chat.turns()
    assert len(await chat.dead()) == 8
    assert invoices.model.requests[-1].messages[-1].content == "hello"


@pytest.mark.both_stores
async def test_unreadable_timer_and_dead_letter_stop_no_other(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    partition, due = chat.store.partition(CHAT), await chat.store.now() + timedelta(seconds=10)
    event = Incoming(conversation=CHAT, event_ids=("late",), body={"kind": "Unheard"})
    with pytest.MonkeyPatch.context() as other:
        other.setattr(codec, "encode", lambda value, real=codec.encode: real({**value, "incoming": 7, "more": 1}))
        timer = Timer(timer_id="odd", due=due, incoming=event)
        letter = Dead(dead_id="odd", conversation=CHAT, reason="r", incoming=event)
        await chat.store.commit(Transaction(partition=partition, timers=[timer], dead=[letter]))
    timer = Timer(timer_id="ours", due=due, incoming=event)
    letter = Dead(dead_id="ours", conversation=CHAT, reason="r", incoming=event)
    await chat.store.commit(Transaction(partition=partition, timers=[timer], dead=[letter]))
    assert [timer.timer_id for timer in await chat.store.timers()] == ["ours"]
    chat.store.offset_seconds += 20
    assert await chat.store.run_timers() is None
    stats = await chat.store.stats()
    assert (stats.waiting, stats.timers) == (1, 0)
    assert "timer odd cannot be read, and was removed" in caplog.text
    told = {letter.dead_id: letter for letter in await chat.store.dead_letters()}
    assert told["ours"].incoming is not None
    assert (told["odd"].incoming, told["odd"].reason) == (None, "r (its content cannot be read)")
    assert await chat.store.drop("odd")


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
