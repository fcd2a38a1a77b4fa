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


def test_command_before_the_bots_name_is_known_is_its_own() -> None:
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


def test_update_with_half_a_surrogate_pair_is_read() -> None:
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


def heard(text: str, **fields: Any) -> Message:
    ana = {"id": 5001, "is_bot": False, "first_name": "Ana"}
    message = {"message_id": 9, "from": ana, "chat": {"id": 5001, "type": "private"}, "date": 1767225600, "text": text}
    [event] = read({"update_id": 1, "message": message | fields}).events
    assert isinstance(event, Message)
    return event


@pytest.mark.parametrize("kind", ["hashtag", "cashtag", "phone_number", "url", "email", "bold", "italic", "code"])
def test_a_code_is_not_spoiled_by_what_telegram_marks(kind: str) -> None:
    message = heard("OK K7P2", entities=[{"type": kind, "offset": 3, "length": 4}])
    assert (message.spoiled_by, message.unknown_fields) == ((), ())


@pytest.mark.parametrize(
    "kind", ["strikethrough", "spoiler", "blockquote", "expandable_blockquote", "pre", "text_link"]
)
def test_a_style_that_changes_what_words_say_spoils(kind: str) -> None:
    styles = [{"type": each, "offset": 0, "length": 3} for each in ("bold", kind, kind)]
    assert heard("yes", entities=styles).spoiled_by == (f"entities.{kind}",)


def test_a_style_that_nobody_knows_is_an_unknown_field() -> None:
    message = heard("yes", entities=[{"type": "wobbling", "offset": 0, "length": 3}])
    assert (message.spoiled_by, message.unknown_fields) == ((), ("entities.wobbling",))


@pytest.mark.parametrize(("user_id", "spoiled_by"), [(7000001, ()), (5002, ("entities.text_mention",))])
def test_a_mention_by_name_spoils_unless_it_is_the_bots(user_id: int, spoiled_by: tuple[str, ...]) -> None:
    user = {"id": user_id, "is_bot": user_id != 5002, "first_name": "Askfirst"}
    mention = {"type": "text_mention", "offset": 0, "length": 8, "user": user}
    assert heard("Askfirst yes", entities=[mention]).spoiled_by == spoiled_by


def test_a_press_without_a_chat_is_of_no_chat() -> None:
    """The button of an inline result, or a press whose message is gone: whose chat it was, nobody says."""
    person = {"id": 5001, "is_bot": False, "first_name": "Ana"}
    for more in ({}, {"inline_message_id": "BAAAA"}, {"message": None}):
        [press] = read({"update_id": 1, "callback_query": {"id": "4", "from": person, "data": "00tok", **more}}).events
        assert (press.address.place, press.address.group, press.answer_to) == ("inline", True, "4")
