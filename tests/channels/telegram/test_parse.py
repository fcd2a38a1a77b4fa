"""Updates of the documented shapes, and bytes of no shape at all.

Each fixture names the page of the Bot API's documentation that its shape is taken from.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Malformed, Parsed
from channels.events import event_from_json, event_to_json
from channels.telegram.parse import UpdateReader

FIXTURES = sorted(Path(__file__).with_name("fixtures").glob("*.json"))
READER = UpdateReader("telegram", "7000001", "askfirst_bot")
UPDATES = [json.loads(path.read_text())["update"] for path in FIXTURES]


def read(update: Any) -> Parsed:
    return READER.read(json.dumps(update).encode())


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_an_update_becomes_its_events(path: Path) -> None:
    fixture = json.loads(path.read_text())
    assert fixture["source"]
    parsed = read(fixture["update"])
    assert [event_to_json(event) for event in parsed.events] == fixture["expected"]["events"]
    assert parsed.not_understood == fixture["expected"]["not_understood"]
    assert (parsed.response.status, parsed.response.body) == (200, b"")
    assert tuple(event_from_json(event_to_json(event)) for event in parsed.events) == parsed.events


def test_before_the_bots_name_is_known_a_command_counts_as_its_own() -> None:
    message = {
        "message_id": 1,
        "chat": {"id": -1, "type": "group"},
        "text": "/stop@any_bot",
        "entities": [{"type": "bot_command", "offset": 0, "length": 13}],
    }
    body = json.dumps({"update_id": 1, "message": message}).encode()
    assert len(UpdateReader("telegram", "1").read(body).events) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"\xff\xfe{}",
        b'{"update_id": 1, "x": "\xff"}',
        b'{"update_id": 1, "x": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"update_id": 1} {"update_id": 2}',
    ],
)
def test_what_is_no_json_object_in_utf8_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        READER.read(body)


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"update_id": "1"},
        {"update_id": 1.5},
        {"update_id": 10**400},
        {"update_id": 1, "message": {}},
        {"update_id": 1, "message": {"message_id": 1}},
        {"update_id": 1, "message": {"message_id": 1, "chat": {"id": 1, "type": "hive"}, "text": "x"}},
        {"update_id": 1, "message": {"message_id": 1, "chat": {"id": 1, "type": "private"}, "text": 1}},
        {"update_id": 1, "callback_query": {"id": "1"}},
        {"update_id": 1, "my_chat_member": {"chat": {"id": 1, "type": "private"}}},
    ],
)
def test_authentic_but_of_no_shape_we_know_is_kept_as_such(update: dict[str, Any]) -> None:
    parsed = read(update)
    assert (parsed.events, parsed.not_understood) == ((), True)


@pytest.mark.parametrize("date", [-(10**18), 10**18, 253402300800, 10**40])
def test_a_date_that_no_calendar_holds_is_unknown(date: int) -> None:
    chat = {"id": 1, "type": "private"}
    [event] = read({"update_id": 1, "message": {"message_id": 1, "date": date, "chat": chat, "text": "x"}}).events
    assert event.sent_at is None


def test_an_entity_beyond_the_text_covers_nothing() -> None:
    entities = [
        {"type": "bot_command", "offset": 0, "length": 10**9},
        {"type": "mention", "offset": 10**9, "length": 1},
    ]
    message = {"message_id": 1, "chat": {"id": 1, "type": "private"}, "text": "🧾", "entities": entities}
    assert len(read({"update_id": 1, "message": message}).events) == 1


def test_a_body_built_to_be_slow_is_read_at_once() -> None:
    message = {"message_id": 1, "chat": {"id": 1, "type": "private"}, "text": "@somebody_bot " * 10_000}
    entities = [{"type": "mention", "offset": 14 * i, "length": 13} for i in range(5_000)]
    body = json.dumps({"update_id": 1, "message": message | {"entities": entities}}).encode()
    began = time.process_time()
    READER.read(body)
    assert time.process_time() - began < 0.5


@given(st.binary(max_size=200))
def test_random_bytes_are_malformed_or_not_understood(body: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert READER.read(body).events == ()


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, inner in items for place in places(inner, (*at, key)))]


@given(st.data())
def test_an_update_with_anything_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    update = json.loads(json.dumps(data.draw(st.sampled_from(UPDATES))))
    for place in data.draw(st.lists(st.sampled_from(places(update)[1:]), min_size=1, max_size=3)):
        inner = update
        try:
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = data.draw(ODD)
        except (LookupError, TypeError):
            continue  # an earlier change took this place away
    with contextlib.suppress(Malformed):
        for event in read(update).events:
            assert event_from_json(event_to_json(event)) == event
