"""Keyed pseudonyms in the log: the same for the same person, and without a real number."""

from __future__ import annotations

import io
import json
import logging

import pytest

from gateway.logs import configure_logging, pseudonyms

KEY = b"a key of more than 16 bytes"
CHANNELS = ("telegram", "slack", "sms", "whatsapp", "webchat", "app")
hide = pseudonyms(KEY, CHANNELS)


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("invoices/telegram:123456:789", "789"),
        ("invoices/telegram:123456:-100789/17", "-100789"),
        ("a turn of invoices/sms:+15550001111:+15557654321 failed: ValueError", "+15557654321"),
        ("bot/slack:T0TEAM:D0PRIVATE/1712.0001", "D0PRIVATE"),
        ("U0456EFGH/C0789/1712.0001/confirm/1712.0002", "U0456EFGH"),
        ("app:-:ana@example.org.", "ana@example.org"),
    ],
)
def test_a_person_or_place_is_a_pseudonym_and_the_rest_stays(text: str, who: str) -> None:
    hidden = hide(text)
    before, after = text.split(who)
    assert hidden.startswith(before + "~")
    assert hidden.endswith(after)
    assert who not in hidden
    assert hide(text) == hidden
    assert pseudonyms(b"another key of 16 bytes", CHANNELS)(text) != hidden


def test_private_chat_and_its_person_share_one_pseudonym() -> None:
    assert hide("bot/telegram:1:77").partition("/")[2] == hide("telegram:1:77")
    assert hide("telegram:1:77") != hide("telegram:1:78")


@pytest.mark.parametrize(
    "text", ["900000001", "SM0123456789abcdef", "http://127.0.0.1:8080/webhooks/telegram", "10:15:31", "lane U0/x"]
)
def test_text_without_a_person_stays_as_it_is(text: str) -> None:
    assert hide(text) == text


def test_no_line_of_the_log_has_a_number() -> None:
    root = logging.getLogger()
    handlers, level, stream = root.handlers[:], root.level, io.StringIO()
    try:
        configure_logging("info", people=hide, stream=stream)
        there = "bot/sms:+15550001111:+15557654321, bot/sms:+15550001111:+15557654322"
        logging.getLogger("askfirst.trail").info("accepted", extra={"event": "SM1, SM2", "conversation": there})
        logging.getLogger("askfirst.turns").error("a turn of %s failed", "bot/sms:+15550001111:+15557654321")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert "1555765" not in stream.getvalue()
    assert first["event"] == "SM1, SM2"
    one, two = first["conversation"].split(", ")
    assert one != two
    assert one in second["message"]
