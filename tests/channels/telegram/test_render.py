"""Replies as calls of the Bot API, held against the real limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Address, Button, Media, Reply
from channels.formatting import read_markdown
from channels.telegram.render import render, to_entities, utf16_length
from tests.fakes.telegram_limits import check_entities

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
