"""A decision changed in the store without the key runs no tool; the person is told, and other actions go on.

Each test puts back, swaps, copies, edits or deletes one row or line between the question and the yes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from channels import Json, Message, Person
from channels.events import event_to_json
from gateway.engine.event_bodies import event_body, received_body, replay_body
from gateway.pending import seal
from gateway.pending.propose import propose_action
from gateway.pending.seal import compute_digest
from gateway.store.errors import Conflict
from gateway.store.form import FORM
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key, Record
from gateway.stored.events import ActionDeadline, body_of
from gateway.tools import PendingAction, Preview
from gateway.tools.pending_action import Token, Vote
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, code_of, here, message
from tests.stored import action_of, edited

CHAT = "agent/test:bot:ana"
GONE = "changed from outside the chat"
_numbers = iter(range(10_000))


def key_of(chat: Rig, name: str) -> Key:
    return Key(chat.store.partition(CHAT), name)


async def read(chat: Rig, name: str) -> Any:
    key = key_of(chat, name)
    return (await chat.store.get([key]))[key].value


async def write(chat: Rig, name: str, value: Json) -> None:
    await chat.store.commit(Transaction(partition=chat.store.partition(CHAT), puts={name: Put(value)}))


async def delete(chat: Rig, name: str) -> None:
    await chat.store.commit(Transaction(partition=chat.store.partition(CHAT), deletes=[name]))


async def press(chat: Rig, number: int, label: str = "Confirm") -> None:
    """Press the button of the question about this invoice."""
    parts = [
        part for _, part in chat.platform.sent if f"INV\\-{number}" in str(part.arguments["text"]) and part.buttons
    ]
    token = next(button.token for part in parts for button in part.buttons if button.label == label)
    await chat.presses(token)
    await chat.work()


def texts(chat: Rig) -> str:
    return "\n".join(chat.platform.texts())


# ── records ──


async def test_end_found_by_a_deadline_of_another_action_is_told(chat: Rig) -> None:
    """A late deadline of a long forgotten action reads the conversation, and ends the changed record."""
    (action,) = await chat.asks(1)
    await delete(chat, f"action/{action.pending_action_id}")
    context, ids = chat.worker.context, ("late deadline",)
    deadline = ActionDeadline(kind="expiry", event_id=ids[0], action_id="gone")
    body = received_body(context.keyring, CHAT, body_of(deadline), await chat.store.now())
    await chat.store.accept([Incoming(conversation=CHAT, event_ids=ids, body=body, decides=True)])
    await chat.worker.engine.due()
    await chat.work()
    assert [text for text in chat.platform.texts() if GONE in text and action.code in text]


async def test_old_record_put_back_after_the_effect_is_not_run(chat: Rig, invoices: Invoices) -> None:
    (action,) = await chat.asks(1)
    name = f"action/{action.pending_action_id}"
    before = await read(chat, name)
    await press(chat, 1)
    assert invoices.deleted == ["INV-1"]
    await write(chat, name, before)
    await press(chat, 1)
    await chat.says("ana", f"ok {action.code}")
    await chat.handles("ana", "yes")
    assert invoices.deleted == ["INV-1"]


async def test_an_old_approved_record_with_its_lane_is_not_launched(chat: Rig, invoices: Invoices) -> None:
    (action,) = await chat.asks(1)
    name = f"action/{action.pending_action_id}"
    await chat.says("ana", f"ok {action.code}")
    approved = await read(chat, name)
    assert action_of(approved).state == "approved"
    await chat.work()
    assert invoices.deleted == ["INV-1"]
    await write(chat, name, approved)
    partition = chat.store.partition(CHAT)
    await chat.store.commit(Transaction(partition=partition, actions=[action.pending_action_id]))
    await chat.work()
    assert invoices.deleted == ["INV-1"]


async def test_a_refused_record_that_is_put_back_stays_refused(chat: Rig, invoices: Invoices) -> None:
    (action,) = await chat.asks(1)
    name = f"action/{action.pending_action_id}"
    before = await read(chat, name)
    await press(chat, 1, "Cancel")
    await write(chat, name, before)
    await press(chat, 1)
    assert invoices.deleted == []


async def test_changed_record_is_logged_once_despite_conflicts(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    (action,) = await chat.asks(1)
    name = f"action/{action.pending_action_id}"
    await write(chat, name, edited(await read(chat, name), args={"invoice_id": "INV-9"}))
    chat.wire.errors = {"commit": [Conflict("read again") for _ in range(3)]}
    await press(chat, 1)
    assert GONE in texts(chat)
    (said,) = [record.message for record in caplog.records if "seal check failed" in record.message]
    assert action.pending_action_id in said


async def test_a_record_copied_over_another_key_is_ended_and_told(chat: Rig, invoices: Invoices) -> None:
    one, two = await chat.asks(1, 2)
    await write(chat, f"action/{one.pending_action_id}", await read(chat, f"action/{two.pending_action_id}"))
    await chat.handles("ana", f"ok {one.code}")
    assert invoices.deleted == []
    assert GONE in texts(chat)
    await press(chat, 2)
    assert invoices.deleted == ["INV-2"]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "approved"},
        {"state": "done"},
        {"state": "closed"},
        {"state": "won"},
        {"args": {"invoice_id": "INV-666"}},
        {"requester": "test:bot:eva"},
        {"code": "AAA3"},
        {"need": 0},
        {"expires_at": None},
        {"tokens": []},
        {"approvers": ["test:bot:bob"]},
        {"kind": "send_invoice_pdf"},
        {"fence": "not a number"},
        {"votes": {"not": "a list"}},
    ],
    ids=str,
)
async def test_an_edited_record_is_ended_and_told(chat: Rig, invoices: Invoices, change: dict[str, Any]) -> None:
    one, _ = await chat.asks(1, 2)
    name = f"action/{one.pending_action_id}"
    await write(chat, name, edited(await read(chat, name), **change))
    await press(chat, 1)
    await chat.handles("ana", f"ok {one.code}")
    assert invoices.deleted == []
    assert GONE in texts(chat)
    assert "Delete invoice “INV" not in next(text for text in chat.platform.texts() if GONE in text)
    await press(chat, 2)
    assert invoices.deleted == ["INV-2"]


def as_form(chat: Rig, name: str, text: str, form: int) -> Json:
    """Return the record as sealed by a release of another form, with the same key."""
    with pytest.MonkeyPatch.context() as release:
        release.setattr(seal, "FORM", form)
        return chat.worker.context.keyring.seal(name, text)


@pytest.mark.parametrize("form", [1, FORM - 1, FORM + 1, None, str(FORM), "absent"], ids=str)
@pytest.mark.parametrize("genuine", [False, True])
async def test_record_of_another_form_is_ended_and_told(
    chat: Rig, invoices: Invoices, form: Any, genuine: bool
) -> None:
    one, _ = await chat.asks(1, 2)
    name = f"action/{one.pending_action_id}"
    record: Any = {**await read(chat, name), "form": form}
    if form == "absent":
        del record["form"]
    elif genuine and isinstance(form, int):
        record = as_form(chat, name, record["body"], form)
    await write(chat, name, record)
    await press(chat, 2)
    assert invoices.deleted == ["INV-2"]
    assert GONE in texts(chat)
    await press(chat, 1)
    assert invoices.deleted == ["INV-2"]


async def test_deleted_record_is_told_and_stops_no_other_action(chat: Rig, invoices: Invoices) -> None:
    one, two = await chat.asks(1, 2)
    await delete(chat, f"action/{one.pending_action_id}")
    await chat.handles("ana", f"ok {two.code}")
    assert invoices.deleted == ["INV-2"]
    assert any(GONE in text and one.code in text for text in chat.platform.texts())


async def test_a_deleted_record_is_told_by_its_deadline_at_the_latest(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    await delete(chat, f"action/{one.pending_action_id}")
    await chat.advance(15 * 60 + 1)
    await chat.work()
    assert any(GONE in text and one.code in text for text in chat.platform.texts())


async def test_edited_record_of_a_running_action_is_told_as_unknown(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    await chat.says("ana", f"ok {one.code}")
    lease = await chat.worker.lease("action")
    running = await chat.worker.engine._actions._launch(
        lease, (await chat.worker.context.actions(CHAT)).by_id[one.pending_action_id]
    )
    assert running is not None
    name = f"action/{one.pending_action_id}"
    await write(chat, name, edited(await read(chat, name), state="approved"))
    await chat.handles("ana", f"no {one.code}")
    assert "may or may not have happened" in texts(chat)
    assert GONE not in texts(chat)


# ── the index ──


async def test_swapped_codes_decide_no_action(chat: Rig, invoices: Invoices) -> None:
    one, two = await chat.asks(1, 2)
    index = await read(chat, f"open/{CHAT}")
    body = index["body"].replace(one.code, "swap").replace(two.code, one.code).replace("swap", two.code)
    await write(chat, f"open/{CHAT}", {**index, "body": body})
    await chat.handles("ana", f"ok {one.code}")
    assert invoices.deleted == []
    assert texts(chat).count(GONE) >= 2


async def test_deleted_index_is_told_at_the_next_press(chat: Rig, invoices: Invoices) -> None:
    await chat.asks(1)
    await delete(chat, f"open/{CHAT}")
    await press(chat, 1)
    assert invoices.deleted == []
    assert GONE in texts(chat)


async def test_an_old_index_put_back_alone_is_no_longer_true(chat: Rig, invoices: Invoices) -> None:
    """The old index would forget a later message of Ana, and her yes would count again."""
    await chat.asks(1)
    context, name = chat.worker.context, f"open/{CHAT}"
    before = await read(chat, name)
    await chat.handles("ana", "what is the weather?")
    assert context.read_index(CHAT, Record(await read(chat, name), 1)).kind == "sealed"
    assert context.read_index(CHAT, Record(before, 1)).kind == "broken"
    await write(chat, name, before)
    await chat.handles("ana", "yes")
    assert invoices.deleted == []


@pytest.mark.parametrize("form", [FORM, FORM + 1])
async def test_odd_index_ends_its_questions_and_no_others(chat: Rig, invoices: Invoices, form: int) -> None:
    await chat.asks(1)
    name = f"open/{CHAT}"
    await write(chat, name, as_form(chat, name, json.dumps({"counter": "of another kind"}), form))
    await chat.hears("bob", "delete INV-2")
    await press(chat, 1)
    assert invoices.deleted == []
    assert GONE in texts(chat)
    await chat.handles("bob", f"ok {code_of(chat.platform.texts('bob')[-1])}")
    assert invoices.deleted == ["INV-2"]


@pytest.mark.parametrize("form", [FORM - 1, FORM + 1])
async def test_approved_action_that_gets_another_form_does_not_run(chat: Rig, invoices: Invoices, form: int) -> None:
    one, two = await chat.asks(1, 2)
    name = f"action/{one.pending_action_id}"
    await chat.says("ana", f"ok {one.code}")
    await write(chat, name, as_form(chat, name, (await read(chat, name))["body"], form))
    await chat.handles("ana", f"ok {two.code}")
    assert invoices.deleted == ["INV-2"]
    assert GONE in texts(chat)


async def test_one_conversations_index_in_anothers_place_is_none(chat: Rig, invoices: Invoices) -> None:
    await chat.asks(1)
    other = "agent/test:bot:bob"
    key = Key(chat.store.partition(other), f"open/{other}")
    await chat.store.commit(
        Transaction(partition=key.partition, puts={key.name: Put(await read(chat, f"open/{CHAT}"))})
    )
    read_there = chat.worker.context.read_index(other, Record(await read(chat, f"open/{CHAT}"), 1))
    assert read_there.kind == "broken"


# ── events, parts, steps ──


async def forged(chat: Rig, body: dict[str, Json], *, decides: bool) -> None:
    incoming = Incoming(conversation=CHAT, event_ids=(f"forged {next(_numbers)}",), body=body, decides=decides)
    await chat.store.accept([incoming])
    await chat.worker.engine.due()
    await chat.work()


async def test_forged_decision_runs_no_tool(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    body: dict[str, Json] = {
        "kind": "decide",
        "action_id": one.pending_action_id,
        "intent": "confirm",
        "person": one.requester,
        "received": 1,
    }
    await forged(chat, body, decides=True)
    assert invoices.deleted == []
    assert await chat.dead() == [
        "a decision that cannot be worked: seal check failed (not written with ASKFIRST_SECRET)"
    ]
    await press(chat, 1)
    assert invoices.deleted == ["INV-1"]


@pytest.mark.parametrize("text", ["ok CODE", "yes"])
async def test_forged_message_runs_no_tool(chat: Rig, invoices: Invoices, text: str) -> None:
    (one,) = await chat.asks(1)
    person = Person(channel="test", account="bot", user_id="ana", name="Ana")
    said = text.replace("CODE", one.code)
    message = Message(
        event_ids=("f",), address=here("ana"), person=person, text=said, message_id="f", after=one.prompts[0]
    )
    await forged(chat, cast("dict[str, Json]", event_to_json(message)), decides=text != "yes")
    assert invoices.deleted == []
    (letter,) = await chat.store.dead_letters()
    assert "seal check failed" in letter.reason


async def test_replayed_dead_letter_decides_no_action(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    context = chat.worker.context
    person = Person(channel="test", account="bot", user_id="ana", name="Ana")
    for text in ("yes", f"ok {one.code}"):
        message = Message(event_ids=(text,), address=here("ana"), person=person, text=text, after=one.prompts[0])
        body = event_body(context.keyring, CHAT, message, await chat.store.now())
        waiting = replace((await _waiting(chat, body)), body=body)
        replayed = replay_body(context.keyring, waiting)
        await chat.store.accept([Incoming(conversation=CHAT, event_ids=(f"replay {text}",), body=replayed)])
        await chat.work()
    assert invoices.deleted == []


async def _waiting(chat: Rig, body: Any) -> Any:
    from gateway.store.types import Waiting

    return Waiting(seq=1, conversation=CHAT, stamp=await chat.store.now(), body=body, pointed=False)


async def test_event_delayed_for_a_minute_decides_no_action(chat: Rig, invoices: Invoices) -> None:
    (one,) = await chat.asks(1)
    context = chat.worker.context
    person = Person(channel="test", account="bot", user_id="ana", name="Ana")
    received = await chat.store.now() - timedelta(seconds=61)
    message = Message(event_ids=("late",), address=here("ana"), person=person, text=f"ok {one.code}", message_id="9")
    body = event_body(context.keyring, CHAT, message, received)
    await chat.store.accept([Incoming(conversation=CHAT, event_ids=("late",), body=body, decides=True)])
    await chat.worker.engine.due()
    await chat.work()
    assert invoices.deleted == []


async def test_an_edited_prompt_in_the_outbox_is_not_sent(chat: Rig, invoices: Invoices) -> None:
    await chat.says("ana", "delete INV-1")
    await chat.worker.turn()
    (part,) = await chat.store.outbox(CHAT)
    body = json.loads(json.dumps(dict(part.body)).replace("INV", "HAM"))
    partition = chat.store.partition(CHAT)
    await chat.store.commit(Transaction(partition=partition, sent=[part.part_id]))
    await chat.store.commit(Transaction(partition=partition, parts=[replace(part, part_id="forged", body=body)]))
    await chat.work()
    assert not any("HAM" in text for text in chat.platform.texts())
    assert GONE in texts(chat)
    assert [action.detail for action in await chat.actions()] == ["tampered"]


@pytest.mark.parametrize("how", ["edited", "shortened", "reordered"])
async def test_a_changed_checkpoint_puts_the_turn_aside(chat: Rig, invoices: Invoices, how: str) -> None:
    from gateway.engine.turns.batch import choose
    from gateway.engine.turns.checkpoint import StoreJournal

    await chat.says("ana", "delete INV-1")
    lease = await chat.worker.lease("turn", lease_seconds=0.0)
    steps = StoreJournal(chat.worker.context, lease, choose(lease.events, language="en"))
    for number in (1, 2, 3):
        await steps.record({"started": f"{number}.1"})
    again = await chat.worker.lease("turn", lease_seconds=0.0)
    stored: list[Any] = [dict(cast("dict[str, Json]", step)) for step in again.steps]
    match how:
        case "edited":
            stored[1]["started"] = "9.9"
        case "shortened":
            del stored[1]
        case _:
            stored[1], stored[2] = stored[2], stored[1]
    lease = replace(again, steps=tuple(stored))
    await chat.worker.turn_of(lease)
    (letter,) = await chat.store.dead_letters()
    assert "checkpoint" in letter.reason
    assert (invoices.deleted, invoices.model.requests) == ([], [])


REPLY: Json = {
    "content": "",
    "tool_calls": [{"call_id": "c0", "name": "delete_invoice", "args": {"invoice_id": "INV-1"}, "parse_error": None}],
    "usage": {"prompt_tokens": 0, "completion_tokens": 0},
    "model": "",
    "finish": "tools",
    "echo": None,
}
WORDS: Json = {"action": "delete_invoice", "preview": "Delete invoice INV-1 for good?", "user_prompt": "Asked."}


async def asked(chat: Rig) -> PendingAction:
    """Return the action as recorded by an earlier attempt at the turn."""
    context = chat.worker.context
    tool, person = context.bot.tool("delete_invoice"), message("ana", "").person
    assert tool is not None and person is not None
    actions = await context.actions(CHAT)
    proposed = propose_action(
        actions,
        tool,
        {"invoice_id": "INV-1"},
        Preview(text="Delete invoice INV-1 for good?"),
        person=person,
        address=here("ana"),
        language="en",
        turn_started=actions.now,
        answer_window_seconds=60.0,
    )
    assert isinstance(proposed, PendingAction)
    return proposed


async def take_over(chat: Rig, *steps: Any) -> None:
    """The turn of "delete INV-1" dies after a reply of the model and these steps, and is taken over."""
    await chat.says("ana", "delete INV-1")
    lease = await chat.worker.lease("turn", lease_seconds=0.0)
    recorded: list[Json] = []
    for step in ({"events": [lease.events[0].seq]}, {"reply": REPLY}, *steps):
        context = f"{CHAT}\n{recorded[-1]['mac'] if recorded else ''}"  # type: ignore[index, call-overload]
        sealed = chat.worker.context.keyring.stamped("step", context, step) if isinstance(step, dict) else step
        recorded.append(sealed)
    await chat.store.commit(Transaction(partition=lease.partition, lease=lease, steps=recorded))
    await chat.retries(4, every=10)


def verdict(record: Any) -> Any:
    return {"asked": 1, "verdicts": [["1.1", {"confirmation": WORDS, "record": record}]]}


async def put_aside(chat: Rig) -> bool:
    """Return whether the turn has left only a dead letter and a text to the person."""
    nothing = (await chat.worker.context.actions(CHAT)).index.entries == ()
    (text,) = chat.platform.texts()
    return nothing and len(await chat.store.dead_letters()) == 1 and "went wrong" in text


@pytest.mark.both_stores
async def test_ask_in_a_checkpoint_is_asked_once(chat: Rig, invoices: Invoices) -> None:
    action = await asked(chat)
    await take_over(chat, verdict(action.to_json()))
    (shown,) = (await chat.worker.context.actions(CHAT)).open
    assert (shown.pending_action_id, shown.digest) == (action.pending_action_id, action.digest)
    (text,) = chat.platform.texts()
    assert action.code in text
    assert (invoices.deleted, invoices.model.requests) == ([], [])


CHANGES: dict[str, dict[str, Any]] = {
    "approved": {"state": "approved"},
    "running": {"state": "running", "fence": 1},
    "done": {"state": "done"},
    "closed": {"state": "closed", "reason": "refused"},
    "voted": {"votes": (Vote(person="test:bot:ana", name=None, at=datetime(2026, 1, 1, tzinfo=UTC)),)},
    "with a token": {"tokens": (Token(sha256="0" * 64, intent="confirm"),)},
    "shown before": {"prompts": ("1",)},
    "decided": {"decided_by": "test:bot:ana"},
    "of bob": {"requester": "test:bot:bob"},
    "of another chat": {"conversation": "agent/test:bot:bob"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.both_stores
async def test_ask_changed_in_a_checkpoint_is_put_aside(chat: Rig, invoices: Invoices, changes: dict[str, Any]) -> None:
    action = await asked(chat)
    changed = replace(action, **changes)
    changed = replace(changed, digest=compute_digest(changed))
    await take_over(chat, verdict(changed.to_json()))
    assert await put_aside(chat)
    assert invoices.deleted == []


@pytest.mark.parametrize("record", [{}, {"state": "approved"}, {"pending_action_id": 7}], ids=str)
@pytest.mark.both_stores
async def test_invalid_action_in_a_checkpoint_is_put_aside(chat: Rig, invoices: Invoices, record: Json) -> None:
    await take_over(chat, verdict(record))
    assert await put_aside(chat)
    assert invoices.deleted == []


@pytest.mark.parametrize("verdict", ["approved", {"deferred": "newer"}, {"approved": True}, None], ids=str)
@pytest.mark.both_stores
async def test_unknown_verdict_runs_no_tool(chat: Rig, invoices: Invoices, verdict: Json) -> None:
    await take_over(chat, {"asked": 1, "verdicts": [["1.1", verdict]]})
    (request,) = invoices.model.requests
    assert "cannot be read" in request.messages[-1].content
    assert await chat.store.dead_letters() == []
    assert invoices.deleted == []


@pytest.mark.parametrize("step", [{"approved": "1.1"}, {"started": 1}, "approved", None], ids=str)
@pytest.mark.both_stores
async def test_an_unknown_step_puts_the_turn_aside(chat: Rig, invoices: Invoices, step: Json) -> None:
    await take_over(chat, step)
    assert await put_aside(chat)
    assert (invoices.deleted, invoices.model.requests) == ([], [])
