"""A planted value stops no person: the entry is put aside or counts as tampered, with one line in the log.

An operator can look. Each test plants every odd value in one kind of stored entry, each value for another person; then
Ana comes to an effect.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.config.limits import Retention
from gateway.engine.turns.batch import choose
from gateway.engine.turns.checkpoint import StoreJournal
from gateway.operations.operator import Operator
from gateway.privacy.expiry import Expiry
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Dead, Incoming
from gateway.stored import keys
from tests.engine.bots import Invoices
from tests.engine.planting import ODD, plant
from tests.engine.rig import Rig, code_of, rig

pytestmark = pytest.mark.both_stores

FORGED = "seal check failed"
PEOPLE = {f"person{number}": value for number, value in enumerate(ODD.values())}
SOME = {person: PEOPLE[person] for person in list(PEOPLE)[::3]}
"""The people of tests with an earlier message, which takes a while."""


def place_of(person: str) -> str:
    return f"agent/test:bot:{person}"


async def plant_in_each(chat: Rig, people: dict[str, bytes], kind: str, name: str = "{place}") -> None:
    for person, value in people.items():
        place = place_of(person)
        await plant(chat.store, place, kind, name.format(place=place, person=person), value)


async def look(chat: Rig) -> Any:
    """Run every reading command of an operator, and return the dead letters."""
    context = chat.worker.context
    operator = Operator(context.store, context.channels, context.keyring, bot="agent")
    for read in (operator.pending, operator.waiting, operator.people, operator.audit, operator.verify_audit):
        await read()
    for name in await operator.conversations():
        await operator.history(name)
        await operator.export(name)
    await operator.usage("person")
    dead = await operator.dead()
    for letter in dead:
        await operator.letter(str(letter["id"]))
    return dead


async def ana_is_answered(chat: Rig, invoices: Invoices) -> None:
    await chat.handles("ana", "delete INV-1")
    await chat.handles("ana", f"ok {code_of(chat.platform.texts()[-1])}")
    assert invoices.deleted == ["INV-1"]
    stats = await chat.store.stats()
    assert (stats.ready, stats.waiting, stats.parts, stats.pointed) == (0, 0, 0, 0)


def lines_of(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    said = [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "WARNING")]
    assert not any("kind" in line or "xxx" in line or "[[" in line for line in said), "content is in the log"
    return [line for line in said if text in line]


async def test_events(chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture) -> None:
    for person in PEOPLE:
        await chat.says(person, "hello")
    await plant_in_each(chat, PEOPLE, "event")
    await ana_is_answered(chat, invoices)
    assert len([letter for letter in await look(chat) if FORGED in letter["reason"]]) == len(ODD)
    assert len(lines_of(caplog, FORGED)) == len(ODD)
    await chat.handles("person0", "and now?")
    assert chat.platform.texts("person0")[-1] == "You said: and now?"


async def test_events_that_decide(chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture) -> None:
    for person in PEOPLE:
        event = Incoming(conversation=place_of(person), event_ids=(person,), body={"kind": "Unheard"}, decides=True)
        await chat.store.accept([event])
    await plant_in_each(chat, PEOPLE, "event")
    await chat.worker.engine.due()
    await ana_is_answered(chat, invoices)
    assert len([letter for letter in await look(chat) if FORGED in letter["reason"]]) == len(ODD)
    assert len(lines_of(caplog, FORGED)) == len(ODD)


async def test_stamps(chat: Rig, invoices: Invoices) -> None:
    people = {"bob": b"9" * 18, "eve": b"soon"}
    for person in people:
        await chat.says(person, "hello")
    await plant_in_each(chat, people, "stamp")
    await ana_is_answered(chat, invoices)
    assert [chat.platform.texts(person) for person in people] == [["You said: hello"]] * 2


async def test_parts(chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture) -> None:
    for person in PEOPLE:
        await chat.notify("news", place=person)
    await plant_in_each(chat, PEOPLE, "part")
    await ana_is_answered(chat, invoices)
    assert len([letter for letter in await look(chat) if FORGED in letter["reason"]]) == len(ODD)
    assert len(lines_of(caplog, FORGED)) == len(ODD)


async def test_steps(chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture) -> None:
    for person in PEOPLE:
        await chat.says(person, "delete INV-7")
        lease = await chat.worker.lease("turn", lease_seconds=0.0, only=place_of(person))
        journal = StoreJournal(chat.worker.context, lease, choose(lease.events, language="en"))
        await journal.record({"started": "1.1"})
    await plant_in_each(chat, PEOPLE, "step")
    await ana_is_answered(chat, invoices)
    assert len([letter for letter in await look(chat) if "checkpoint" in letter["reason"]]) == len(ODD)
    assert len(lines_of(caplog, "checkpoint")) == len(ODD)


WRONG: dict[str, Any] = {
    "keep_seconds": "long",
    "about": 7,
    "wakes": "yes",
    "stamp": 10**30,
    "body": 7,
    "event_ids": 7,
    "conversation": None,
}


async def test_timers_and_dead_letters(
    chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, odd = await chat.store.now(), {**ODD, **{name: name.encode() for name in WRONG}}
    for number in range(len(odd)):
        event = Incoming(conversation=place_of("bob"), event_ids=(f"ours {number}",), body={"kind": "Unheard"})
        timer = Timer(timer_id=f"odd/{number}", due=now + timedelta(seconds=9), incoming=event)
        letter = Dead(dead_id=f"odd/{number}", conversation=event.conversation, reason="r", incoming=event)
        partition = chat.store.partition(event.conversation)
        await chat.store.commit(Transaction(partition=partition, timers=[timer], dead=[letter]))
    for number, (name, value) in enumerate(odd.items()):
        for kind in ("timer", "dead"):
            planted = wrong(kind, name) if name in WRONG else value
            await plant(chat.store, place_of("bob"), kind, f"odd/{number}", planted)
    await chat.advance(10)
    assert len(lines_of(caplog, "cannot be read, and was removed")) == len(odd)
    await ana_is_answered(chat, invoices)
    dead = await look(chat)
    assert [letter["what"] for letter in dead] == ["unreadable"] * len(odd)


def wrong(kind: str, name: str) -> bytes:
    """Return the text of a timer or a dead letter with one field of another kind."""
    event: dict[str, Any] = {
        "conversation": place_of("bob"), "event_ids": ["e"], "body": {}, "decides": False, "wakes": True,
        "refusable": False, "keep_seconds": 9.0, "stamp": None, "collects": False, "about": None,
    }  # fmt: skip
    event[name] = WRONG[name]
    return json.dumps(event if kind == "timer" else {"incoming": event, "part": None}).encode()


@pytest.mark.parametrize("name", ["open/{place}", "people/{place}"])
async def test_records_of_a_conversation(chat: Rig, invoices: Invoices, name: str) -> None:
    for person in SOME:
        await chat.handles(person, "delete INV-7")
    await plant_in_each(chat, SOME, "record", name)
    for person in SOME:
        await chat.handles(person, "are you there?")
        assert chat.platform.texts(person)[1] == "You said: are you there?"
    await ana_is_answered(chat, invoices)
    await chat.advance(15 * 60 + 1)
    await chat.work()
    for person in SOME:
        told = "\n".join(chat.platform.texts(person))
        assert ("changed from outside the chat" in told) == name.startswith("open/")
    await look(chat)


async def test_actions(chat: Rig, invoices: Invoices) -> None:
    for person in SOME:
        await chat.handles(person, "delete INV-7")
    found = {action.conversation: action for action in await chat.actions()}
    for person, value in SOME.items():
        name = f"action/{found[place_of(person)].pending_action_id}"
        await plant(chat.store, place_of(person), "record", name, value)
    for person in SOME:
        await chat.handles(person, f"ok {found[place_of(person)].code}")
        assert "changed from outside the chat" in "\n".join(chat.platform.texts(person))
    await ana_is_answered(chat, invoices)
    await look(chat)


@pytest.mark.parametrize("odd", ["no JSON", "no text", "null", "list", "nested"])
async def test_action_without_a_readable_record_is_told_to_all(
    chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture, odd: str
) -> None:
    """Defect 18: no person was told. The sealed index of the conversation still lists the question."""
    await chat.hears("ana", "delete INV-1")
    (action,) = await chat.actions()
    await plant(chat.store, place_of("ana"), "record", f"action/{action.pending_action_id}", ODD[odd])
    await chat.handles("ana", f"OK {action.code}")
    assert invoices.deleted == []
    told = [text for text in chat.platform.texts("ana") if "changed from outside the chat" in text]
    assert action.code in told[0]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any(action.pending_action_id in error for error in errors)
    await chat.hears("ana", "delete INV-2")
    await chat.handles("ana", f"OK {code_of(chat.platform.texts('ana')[-1])}")
    assert invoices.deleted == ["INV-2"]


@pytest.mark.parametrize("value", [10**18, 8 * 10**15, -1, 10**400, "soon"])
async def test_planted_time_does_not_delay_the_sweep(chat: Rig, value: Any) -> None:
    partition = chat.store.partition(keys.EXPIRY)
    await chat.store.commit(Transaction(partition=partition, puts={keys.EXPIRY: Put(7)}))
    await plant(chat.store, keys.EXPIRY, "record", keys.EXPIRY, json.dumps(value).encode())
    sweep = Expiry(chat.store, Retention())
    assert await sweep.run(await chat.store.now())
    assert not await sweep.run(await chat.store.now()), "the next one is due in a day"


async def test_transcripts(chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture) -> None:
    for person in SOME:
        await chat.handles(person, "hello")
    await plant_in_each(chat, SOME, "log", "transcript/{place}")
    for person in SOME:
        await chat.handles(person, "are you there?")
        assert chat.platform.texts(person)[-1] == "You said: are you there?"
    assert len(lines_of(caplog, FORGED)) == len(SOME)
    await ana_is_answered(chat, invoices)
    await look(chat)


async def test_audit_and_shapes(chat: Rig, invoices: Invoices) -> None:
    for person, value in SOME.items():
        await chat.handles(person, "delete INV-7")
        partition = chat.store.partition(place_of(person))
        shape = f"shape/{place_of(person)}/x"
        await chat.store.commit(Transaction(partition=partition, puts={shape: Put(7)}))
        await plant(chat.store, place_of(person), "record", shape, value)
    await plant_in_each(chat, SOME, "log", "audit")
    await ana_is_answered(chat, invoices)
    await look(chat)


async def test_counts(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(), tmp_path, budgets="bot=100 USD/day") as chat:
        await chat.handles("bob", "hello")
        for number, value in enumerate(ODD.values()):
            for name in await chat.store.all_spent(""):
                await plant(chat.store, place_of("bob"), "spent", name, value)
            await chat.handles("bob", f"are you there, {number}?")
            assert chat.platform.texts("bob")[-1] == f"You said: are you there, {number}?"
        await look(chat)
        await ana_is_answered(chat, invoices)
