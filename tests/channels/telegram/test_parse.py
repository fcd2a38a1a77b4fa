"""Updates of odd shapes. The fixtures of the contract have the documented ones."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Address, Button, Malformed, Media, Message, Parsed, Reply
from channels.formatting import read_markdown
from channels.telegram.parse import UpdateReader
from channels.telegram.render import render, to_entities, utf16_length
from tests.fakes.telegram_limits import check_entities

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
def test_body_that_is_no_json_object_in_utf8_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        READER.read(body)


def test_update_with_half_a_surrogate_pair_is_read() -> None:
    """Otherwise Telegram would repeat the update for ever, and deliver no other update of the bot meanwhile."""
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
def test_authentic_update_of_unknown_shape_is_not_understood(update: dict[str, Any]) -> None:
    parsed = read(update)
    assert (parsed.events, parsed.not_understood) == ((), True)


@pytest.mark.parametrize("date", [-(10**18), 10**18, 253402300800, 10**40])
def test_a_date_that_no_calendar_holds_is_unknown(date: int) -> None:
    chat = {"id": 1, "type": "private"}
    [event] = read({"update_id": 1, "message": {"message_id": 1, "date": date, "chat": chat, "text": "x"}}).events
    assert event.sent_at is None


def test_an_entity_beyond_the_text_covers_no_text() -> None:
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
def test_a_code_is_not_spoiled_by_entities_of_telegram(kind: str) -> None:
    message = heard("OK K7P2", entities=[{"type": kind, "offset": 3, "length": 4}])
    assert (message.spoiled_by, message.unknown_fields) == ((), ())


@pytest.mark.parametrize(
    "kind", ["strikethrough", "spoiler", "blockquote", "expandable_blockquote", "pre", "text_link"]
)
def test_a_style_that_changes_the_meaning_spoils(kind: str) -> None:
    styles = [{"type": each, "offset": 0, "length": 3} for each in ("bold", kind, kind)]
    assert heard("yes", entities=styles).spoiled_by == (f"entities.{kind}",)


def test_an_unknown_style_is_an_unknown_field() -> None:
    message = heard("yes", entities=[{"type": "wobbling", "offset": 0, "length": 3}])
    assert (message.spoiled_by, message.unknown_fields) == ((), ("entities.wobbling",))


@pytest.mark.parametrize(("user_id", "spoiled_by"), [(7000001, ()), (5002, ("entities.text_mention",))])
def test_a_mention_by_name_spoils_unless_it_is_the_bots(user_id: int, spoiled_by: tuple[str, ...]) -> None:
    user = {"id": user_id, "is_bot": user_id != 5002, "first_name": "Askfirst"}
    mention = {"type": "text_mention", "offset": 0, "length": 8, "user": user}
    assert heard("Askfirst yes", entities=[mention]).spoiled_by == spoiled_by


def test_a_press_without_a_chat_is_of_no_chat() -> None:
    """The button of an inline result, or a press whose message is gone: the update names no chat."""
    person = {"id": 5001, "is_bot": False, "first_name": "Ana"}
    for more in ({}, {"inline_message_id": "BAAAA"}, {"message": None}):
        [press] = read({"update_id": 1, "callback_query": {"id": "4", "from": person, "data": "00tok", **more}}).events
        assert (press.address.place, press.address.group, press.answer_to) == ("inline", True, "4")


# ── Replies as calls of the Bot API, held against the real limits ──


CHAT = Address(channel="telegram", account="1", place="42")
CONFIRM = Button(label="Confirm", token="a" * 64, style="confirm")
CANCEL = Button(label="Cancel", token="b" * 64, style="cancel")
PDF = Media(sha256="0" * 64, mime_type="application/pdf", filename="a.pdf", size=10)

PIECES = (
    *("*", "**", "~~", "`", "[", "![", "](https://a.example)", "](javascript:x)", "<b>", "&amp;", "\\"),
    *("```\n", "> ", "- ", "1. ", "# ", "\n", "\n\n", "|a|b|\n|-|-|\n|1|2|\n", "word ", "x" * 500, "🧾", "é", "\u200d"),
)
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


def calls(reply: Reply, to: Address = CHAT) -> list[str]:
    return [part.call for part in render(to, reply)]


@given(MARKDOWN, st.integers(0, 4200))
def test_entities_name_the_words_they_were_written_for(text: str, padding: int) -> None:
    styled = read_markdown("🧾" * (padding % 7) + text)
    entities: Any = to_entities(styled)
    check_entities(styled.text, entities)
    units = styled.text.encode("utf-16-le")
    for entity in entities:
        covered = units[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])].decode("utf-16-le")
        assert covered in styled.text
        assert utf16_length(covered) == entity["length"]


def test_only_links_that_lead_somewhere_harmless_are_links() -> None:
    links = "[a](https://a.example) [b](tg://user?id=5) [c](tg://resolve?domain=x) [d](ftp://x) [e](mailto:a@b.example)"
    entities: Any = to_entities(read_markdown(links))
    assert [e["url"] for e in entities] == ["https://a.example", "tg://user?id=5", "mailto:a@b.example"]


def test_code_within_other_marks_stands_alone() -> None:
    styled = read_markdown("**a `b` c** [`d`](https://e.example)\n\n> `f`\n>\n> ```\n> g\n> ```")
    entities: Any = to_entities(styled)
    check_entities(styled.text, entities)
    shown = [(e["type"], styled.text[e["offset"] : e["offset"] + e["length"]]) for e in entities]
    assert shown == [
        ("bold", "a"),
        ("bold", "c"),
        ("code", "b"),
        ("text_link", "d"),
        ("blockquote", "f"),
        ("pre", "g"),
    ]


def test_confirm_and_cancel_share_a_row_and_others_do_not() -> None:
    plain = Button(label="Show all of it, which is rather a long label for a button", token="p")
    [part] = render(CHAT, Reply(text="?", buttons=(CONFIRM, CANCEL, plain, CONFIRM, CANCEL)))
    markup: Any = part.arguments["reply_markup"]
    labels = [[button["text"] for button in row] for row in markup["inline_keyboard"]]
    assert labels == [
        ["Confirm", "Cancel"],
        ["Show all of it, which is rather a long …"],
        ["Confirm", "Cancel"],
    ]


def test_a_token_of_more_than_64_bytes_is_refused() -> None:
    for token in ("a" * 65, "é" * 33):
        with pytest.raises(ValueError, match="64 bytes"):
            render(CHAT, Reply(text="?", buttons=(Button(label="x", token=token),)))


def test_short_text_is_the_caption_of_its_file_and_long_is_not() -> None:
    assert calls(Reply(text="x" * 1024, media=(PDF,))) == ["sendDocument"]
    assert calls(Reply(text="🧾" * 513, media=(PDF,))) == ["sendMessage", "sendDocument"]
    assert calls(Reply(text="x", media=(PDF, PDF))) == ["sendMessage", "sendDocument", "sendDocument"]


@pytest.mark.parametrize(
    ("mime_type", "size", "call"),
    [
        ("image/png", 10_000_000, "sendPhoto"),
        ("image/png", 10_000_001, "sendDocument"),
        ("image/svg+xml", 10, "sendDocument"),
        ("video/mp4", 50_000_000, "sendVideo"),
        ("video/webm", 10, "sendDocument"),
        ("application/pdf", 50_000_001, "sendMessage"),
    ],
)
def test_a_file_goes_the_way_its_type_and_size_allow(mime_type: str, size: int, call: str) -> None:
    media = Media(sha256="0" * 64, mime_type=mime_type, filename="a", size=size)
    [part] = render(CHAT, Reply(media=(media,)))
    assert (part.call, part.media) == (call, media)


def test_long_edit_replaces_the_message_and_the_rest_follows() -> None:
    parts = render(CHAT, Reply(text="word " * 1000, edits="7"))
    assert [(part.call, part.arguments.get("message_id")) for part in parts] == [
        ("editMessageText", 7),
        ("sendMessage", None),
    ]


def test_an_edit_names_no_topic() -> None:
    topic = Address(channel="telegram", account="1", place="-100", thread="9", group=True)
    [edited] = render(topic, Reply(text="x", edits="7"))
    assert "message_thread_id" not in edited.arguments


def test_links_are_shown_without_a_preview() -> None:
    [part] = render(CHAT, Reply(text="https://a.example", media=()))
    assert part.arguments["link_preview_options"] == {"is_disabled": True}
