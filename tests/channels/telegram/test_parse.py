"""Updates of odd shapes. What the documented ones become is in the fixtures, which the contract reads."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from channels import Malformed, Message, Parsed
from channels.telegram.parse import UpdateReader

READER = UpdateReader("telegram", "7000001", "askfirst_bot")


def read(update: Any) -> Parsed:
    return READER.read(json.dumps(update).encode())


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
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"update_id": 1} {"update_id": 2}',
    ],
)
def test_what_is_no_json_object_in_utf8_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        READER.read(body)


def test_half_a_character_holds_back_no_chat() -> None:
    """Telegram would deliver it again and again, and nothing else of the bot's meanwhile."""
    chat = {"id": 1, "type": "private", "title": "\ud83d"}
    message = {"message_id": 1, "chat": chat, "text": "a \ude00 b", "unknown to us": ["\ud83d"]}
    [event] = read({"update_id": 1, "message": message}).events
    assert isinstance(event, Message)
    assert event.text == "a ? b"


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
