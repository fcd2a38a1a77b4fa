"""Replies as messages."""

from __future__ import annotations

import re

import pytest

from channels import Address, Button, Media, Part, Reply
from channels.formatting import GSM, drop_dear_accents, fold_to_gsm, read_markdown, to_whatsapp
from channels.twilio.render import SMS, WHATSAPP, render_sms, render_whatsapp

PDF = Media(sha256="0" * 64, mime_type="application/pdf", filename="INV–42.pdf", size=1000)
HERE = Address(channel="sms", account="+15550001111", place="+15557654321")
BUTTONS = (Button(label="Delete", token="t1", style="confirm"), Button(label="Keep", token="t2", style="cancel"))


def sms(markdown: str) -> list[str]:
    return [str(part.arguments["body"]) for part in render_sms(HERE, Reply(text=markdown))]


def whatsapp(markdown: str) -> list[str]:
    return [str(part.arguments["body"]) for part in render_whatsapp(Reply(text=markdown))]


@pytest.mark.parametrize(
    ("markdown", "plain", "marked"),
    [
        ("**Delete** _INV-42_?", "Delete INV-42?", "*Delete* _INV-42_?"),
        ("~~old~~ `code`", "old code", "~old~ `code`"),
        ("***both***", "both", "*_both_*"),
        ("# Title", "Title", "*Title*"),
        ("[the bill](https://x.example/a)", "the bill (https://x.example/a)", "the bill (https://x.example/a)"),
        ("<https://x.example/a>", "https://x.example/a", "https://x.example/a"),
        ("**[bill](https://x.example)**", "bill (https://x.example)", "*bill* (https://x.example)"),
        ("> said\n> twice", "> said\n> twice", "> said\n> twice"),
        ("> **loud**", "> loud", "> *loud*"),
        ("```py\na = 1\nb = 2\n```", "a = 1\nb = 2", "```a = 1\nb = 2```"),
        ("un**like**ly", "unlikely", "unlikely"),
        ("**two\nlines**", "two\nlines", "*two*\n*lines*"),
        ("**2 * 3**", "2 * 3", "2 * 3"),
        ("“It’s” – done…", '"It\'s" - done...', "“It’s” – done…"),
        ("- one\n- two", "- one\n- two", "• one\n• two"),
    ],
)
def test_each_channel_shows_what_it_can(markdown: str, plain: str, marked: str) -> None:
    assert sms(markdown) == [plain]
    assert whatsapp(markdown) == [marked]


def test_letters_are_never_folded() -> None:
    for text in ("löschen Ñandú ¿sí?", "удалить", "删除 42", "🙂"):
        assert fold_to_gsm(text) == text


@pytest.mark.parametrize(
    ("written", "cheap"),
    [
        ("SÍ, NÃO, você, ação", "SI, NAO, voce, acao"),
        ("El año de la niña, ¿qué? ¡Él!", "El año de la niña, ¿qué? ¡Él!"),
        ("über Größe à Ørsted €", "über Größe à Ørsted €"),
        ("删除 привет 🙂 ő", "删除 привет 🙂 o"),
    ],
)
def test_own_words_lose_the_accents_that_make_sms_dear(written: str, cheap: str) -> None:
    assert drop_dear_accents(written) == cheap


def test_a_line_break_in_a_value_costs_nothing() -> None:
    (text,) = sms("note: one ⏎ two")
    assert text == "note: one \\n two" and set(text) <= GSM


@pytest.mark.ledger("CFG-03")
@pytest.mark.parametrize("render", [sms, whatsapp])
def test_parts_of_a_long_text_are_numbered(render: object) -> None:
    texts = (sms if render is sms else whatsapp)("\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(20)))
    assert len(texts) > 3
    assert [text.partition(" ")[0] for text in texts] == [f"({n}/{len(texts)})" for n in range(1, len(texts) + 1)]
    assert all(len(text) <= SMS.max_text for text in texts)
    numbers = [int(n) for text in texts for n in re.findall(r"Paragraph (\d+)", text)]
    assert numbers == list(range(20))


def test_exactly_as_long_as_one_message_is_one_message() -> None:
    assert sms("x" * 1600) == ["x" * 1600]
    assert len(sms("x" * 1601)) == 2
    assert len(sms("🙂" * 800)) == 1
    assert len(sms("🙂" * 801)) == 2


def test_an_address_is_not_torn_apart() -> None:
    address = "https://bot.example.com/artifacts/" + "a" * 300
    texts = sms("word " * 300 + address + " and more " * 50)
    assert any(address in text for text in texts)


def test_marks_are_closed_in_every_part() -> None:
    for text in whatsapp("**" + "bold " * 400 + "end**"):
        assert text.count("*") == 2


def test_an_address_longer_than_a_message_ends() -> None:
    texts = whatsapp(f"[label](https://x.example/{'a' * 4000})")
    assert all(len(text) <= WHATSAPP.max_text for text in texts)
    assert "".join(texts).count("a") > 4000


# ── files and prompts ──


@pytest.mark.ledger("RES-17")
def test_a_file_goes_as_itself_by_whatsapp_and_as_a_link_by_sms() -> None:
    reply = Reply(text="Here:", media=(PDF,))
    assert list(render_whatsapp(reply)) == [
        Part(call="message", arguments={"body": "Here:"}),
        Part(call="media", arguments={"body": "“INV–42.pdf”"}, media=PDF),
    ]
    assert list(render_sms(HERE, reply)) == [
        Part(call="message", arguments={"body": "Here:"}),
        Part(call="link", arguments={"body": '"INV-42.pdf"'}, media=PDF),
    ]


@pytest.mark.parametrize(
    ("mime_type", "size", "call"),
    [
        ("image/png", 5_000_000, "media"),
        ("image/png", 5_000_001, "link"),
        ("image/gif", 10, "link"),
        ("video/mp4", 16_000_001, "link"),
        ("application/zip", 10, "link"),
        ("application/pdf", 16_000_000, "media"),
    ],
)
def test_what_whatsapp_does_not_take_is_linked(mime_type: str, size: int, call: str) -> None:
    media = Media(sha256="0" * 64, mime_type=mime_type, filename="file", size=size)
    assert [part.call for part in render_whatsapp(Reply(media=(media,)))] == [call]


@pytest.mark.parametrize(
    ("ours", "theirs", "mime_type", "size", "call"),
    [
        ("+15550001111", "+15557654321", "image/png", 5_000_000, "media"),
        ("+15550001111", "+14165550000", "image/jpeg", 10, "media"),
        ("+15550001111", "+15557654321", "image/gif", 10, "media"),
        ("+15550001111", "+15557654321", "image/png", 5_000_001, "link"),
        ("+15550001111", "+15557654321", "image/webp", 10, "link"),
        ("+15550001111", "+15557654321", "application/pdf", 10, "link"),
        ("+15550001111", "+18765550000", "image/png", 10, "link"),  # Jamaica
        ("+15550001111", "+447700900000", "image/png", 10, "link"),
        ("+447700900001", "+15557654321", "image/png", 10, "link"),
        ("12345", "+15557654321", "image/png", 10, "link"),
    ],
)
def test_a_picture_goes_by_mms_where_there_is_mms(ours: str, theirs: str, mime_type: str, size: int, call: str) -> None:
    media = Media(sha256="0" * 64, mime_type=mime_type, filename="file", size=size)
    place = Address(channel="sms", account=ours, place=theirs)
    assert [part.call for part in render_sms(place, Reply(media=(media,)))] == [call]


@pytest.mark.parametrize("render", [render_sms, render_whatsapp])
def test_a_prompt_comes_last_in_words(render: object) -> None:
    reply = Reply(text="Delete INV-42? Answer OK K7P2.", media=(PDF,), buttons=BUTTONS)
    parts = list(render_sms(HERE, reply) if render is render_sms else render_whatsapp(reply))
    assert [part.call for part in parts][-1] == "message"
    assert parts[-1].arguments == {"body": "Delete INV-42? Answer OK K7P2."}
    assert [part.buttons for part in parts] == [(), BUTTONS]
    assert SMS.buttons == WHATSAPP.buttons == 0


def test_nested_marks_become_whatsapp_marks() -> None:
    assert to_whatsapp(read_markdown("a **b _c_** d")) == "a *b _c_* d"
