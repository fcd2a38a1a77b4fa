"""The stored forms, byte for byte: each change raises the number of the form (`gateway/store/form.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Button, Json, Message, Part, Person, Reply
from channels.events import event_to_json
from gateway.engine.memory.records import KeptMemory
from gateway.pending.audit import Noted, Pseudonyms, chained
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys
from gateway.stored.events import Notification, body_of, event_of, is_internal
from gateway.stored.memory_events import memory_body_of, memory_event_of
from gateway.stored.outbox import OutboxItem
from gateway.tools.pending_action import PendingAction

HERE = Address(channel="telegram", account="7", place="42")
STORED = Path(__file__).with_name("stored_events.txt").read_text(encoding="utf-8").splitlines()
"""The class of an event, and the stored text."""


@pytest.mark.parametrize("line", STORED, ids=lambda line: line[:40])
def test_an_event_of_the_gateway_has_this_text(line: str) -> None:
    name, text = line.split(" ", 1)
    body = json.loads(text)
    internal = is_internal(body)
    event: Any = event_of(body) if internal else memory_event_of(body)
    assert type(event).__name__ == name
    written = body_of(event) if internal else memory_body_of(event)
    assert json.dumps(written, separators=(",", ":")) == text
    fields = {field: value for field, value in body.items() if hasattr(event, field)}
    assert body.keys() - fields.keys() <= {"kind"}
    if "address" in fields:
        fields["address"] = Address(**body["address"])
    assert {field: getattr(event, field) for field in fields} == fields


def test_a_scheduled_reply_has_this_text() -> None:
    event = Notification(event_ids=("notify/1",), address=HERE, reply=Reply(text="Time to pay."))
    text = json.dumps(body_of(event), separators=(",", ":"))
    assert text.startswith(
        '{"kind":"notify","event_ids":["notify/1"],"address":{"channel":"telegram","account":"7","place":"42"'
    )
    assert event_of(json.loads(text)) == event


def test_the_event_of_a_platform_is_read_as_itself() -> None:
    person = Person(channel="telegram", account="7", user_id="1")
    event = Message(event_ids=("telegram/1",), address=HERE, person=person, text="hello")
    body = json.loads(json.dumps(event_to_json(event)))
    assert event_of(body) == event and not is_internal(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "of tomorrow"},
        {"kind": "expiry", "event_id": "e"},
        {"kind": "decide", "event_id": "e", "action_id": "a1", "person": "p", "intent": "perhaps"},
        {"kind": "notify", "event_ids": ["n"], "address": None, "reply": {}},
    ],
)
def test_a_body_that_is_no_event_is_refused(body: dict[str, Json]) -> None:
    with pytest.raises(ValueError):
        event_of(body)


def test_the_body_of_a_part_has_this_text() -> None:
    item = OutboxItem.of(
        HERE,
        Part(call="sendMessage", arguments={"text": "Delete it?"}, buttons=(Button(label="Yes", token="t"),)),
        shows=("a1",),
        asks=("a1",),
        tells=(),
        alone=True,
        edits=None,
        cause="telegram/1",
        language="pt",
    )
    body = item.to_json()
    assert list(body) == ["address", "part", "shows", "asks", "tells", "alone", "edits", "cause", "language"]
    text = json.dumps({name: body[name] for name in list(body)[2:]}, separators=(",", ":"))
    assert text == (
        '{"shows":["a1"],"asks":["a1"],"tells":[],"alone":true,"edits":null,"cause":"telegram/1","language":"pt"}'
    )
    again = OutboxItem.from_json(json.loads(json.dumps(body)))
    assert again == item and again.address == HERE and again.part.buttons[0].token == "t"


def test_the_body_of_a_part_with_missed_news_has_this_text() -> None:
    item = OutboxItem.of(
        HERE,
        Part(call="sendMessage", arguments={"text": "Done."}),
        shows=(),
        asks=(),
        tells=(),
        alone=False,
        edits=None,
        cause="wrote/1",
        language="pt",
        reader="telegram:7:42",
        refused_at=replace(HERE, place="-9", group=True),
        news="*Done.*",
        news_at="2026-11-27T00:00:00+00:00",
    )
    body = item.to_json()
    assert list(body)[9:] == ["reader", "refused_at", "news", "news_at"]
    assert (body["news"], body["news_at"]) == ("*Done.*", "2026-11-27T00:00:00+00:00")
    assert OutboxItem.from_json(json.loads(json.dumps(body))) == item


NAMES: dict[str, Callable[[], str]] = {
    "transcript/c": lambda: keys.transcript("c"),
    "visible/c": lambda: keys.visible_log("c"),
    "open/c": lambda: keys.index("c"),
    "notes/c": lambda: keys.folded_notes("c"),
    "failures/c": lambda: keys.failures("c"),
    "asked/c": lambda: keys.addressed("c"),
    "beside/c": lambda: keys.overheard("c"),
    "moved/c": lambda: keys.before_move("c"),
    "links/c": lambda: keys.links("c"),
    "link/s": lambda: keys.short_link("s"),
    "opted_out/c": lambda: keys.opted_out("c"),
    "unreachable/c": lambda: keys.unreachable("c"),
    "word/m/c": lambda: keys.turn_result("c", "m"),
    "budget_told/p/c": lambda: keys.budget_told("c", "p"),
    "doubt/p/c": lambda: keys.attempt_state("c", "p"),
    "message/m/c": lambda: keys.platform_message("c", "m"),
    "taken/p/c": lambda: keys.part_message("c", "p"),
    "poller/telegram": lambda: keys.poller("telegram"),
    "action/a": lambda: keys.action("a"),
    "token/s": lambda: keys.token("s"),
    "alive/a": lambda: keys.heartbeat("a"),
    "seed/c": lambda: keys.seed_slot("c"),
    "admitted/p": lambda: keys.admitted("p"),
    "shape/c/n": lambda: keys.shape("c", "n"),
    "ended_session/s": lambda: keys.ended_session("s"),
    "ended_sessions": lambda: keys.ENDED_SESSIONS,
    "reached": lambda: keys.REACHED,
}


def test_each_record_has_its_name() -> None:
    assert {name: key() for name, key in NAMES.items()} == dict(zip(NAMES, NAMES, strict=True))


@pytest.mark.parametrize("body", [{}, {"kind": "memory_due"}, {"kind": "facts_noted", "event_id": "f", "facts": "x"}])
def test_a_body_that_is_no_memory_event_is_refused(body: dict[str, Json]) -> None:
    with pytest.raises(ValueError):
        memory_event_of(body)


def test_a_memory_has_this_text() -> None:
    kept = KeptMemory(epoch="e1").read_to(7, ["value"])
    text = '{"epoch":"e1","through":7,"turns":1,"value":["value"]}'
    assert json.dumps(kept.to_json(), separators=(",", ":")) == text
    assert KeptMemory.of(json.loads(text), "e1") == kept
    assert KeptMemory.of(json.loads(text), "e2") == KeptMemory(epoch="e2")


async def test_the_record_of_a_pseudonym_has_this_form() -> None:
    store, transaction = SqliteStore(":memory:"), Transaction(partition="00")
    await store.open()
    try:
        named = await Pseudonyms(store, random=bytes).name(["sms:+1:+2"], transaction)
    finally:
        await store.close()
    assert named == {"sms:+1:+2": "~1746386175c9a6cfd3cb7a13e6b86914"}
    assert transaction.puts == {"pseudonym/sms:+1:+2": Put({"person": "sms:+1:+2", "key": "0" * 64})}
    assert transaction.expect == {"pseudonym/sms:+1:+2": 0}


def test_a_line_of_the_audit_has_this_text() -> None:
    at = datetime(2026, 11, 27, tzinfo=UTC)
    action = PendingAction(
        pending_action_id="a1", kind="pay", preview="Pay?", requester="sms:+1:+2", conversation="c", requested_at=at
    )
    named = {"sms:+1:+2": f"~{'7' * 32}"}
    lines = [
        chained(action, Noted(action_id="a1", what="asked", by=by, at=at), named)
        for by in ("sms:+1:+2", "operator", None)
    ]
    assert json.dumps(lines[0], separators=(",", ":")) == (
        '{"action":"a1","what":"asked","person":"~77777777777777777777777777777777",'
        '"at":"2026-11-27T00:00:00+00:00","digest":"","before":"","head":"40e8bab2644c29cc1a286a86a64595df24a2d3517929b92d59651443c3b2521a"}'
    )
    assert [line["person"] for line in lines[1:]] == ["operator", None]
