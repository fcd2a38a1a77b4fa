"""Payloads of the documented shapes, and bytes of no shape at all.

Each fixture names the page of Slack's documentation that its shape is taken from.
"""

from __future__ import annotations

import copy
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from slack_sdk.signature import SignatureVerifier

from channels import Forged, Malformed, Message, Parsed, Stale, WebhookRequest
from channels.events import event_from_json, event_to_json
from channels.slack import SlackChannel
from channels.slack.parse import PayloadReader
from tests.channels.slack.case import FIXTURES, FORM, delivery, posted

READER = PayloadReader("slack")


def raw(body: bytes, kind: str = "application/json") -> WebhookRequest:
    return WebhookRequest("POST", "https://bot.example/webhooks/slack", {"content-type": kind}, body)


def loaded(name: str) -> Any:
    return copy.deepcopy(FIXTURES[name])


def read(name: str, reader: PayloadReader = READER) -> Parsed:
    return reader.read(delivery(name).request)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_payload_becomes_its_events(name: str) -> None:
    documented = delivery(name)
    parsed = READER.read(documented.request)
    assert parsed == documented.parsed
    assert tuple(event_from_json(event_to_json(event)) for event in parsed.events) == parsed.events


def test_a_message_and_its_mention_are_one() -> None:
    [message], [mention] = read("message_mention").events, read("app_mention").events
    assert message.address == mention.address
    assert set(message.event_ids) & set(mention.event_ids) == {"C0123/1767225600.000200"}
    assert isinstance(message, Message) and isinstance(mention, Message)
    assert message.mentions_bot and mention.mentions_bot


def test_a_press_is_in_the_conversation_of_its_prompt() -> None:
    for prompt, press in (
        ("message_channel_thread_of_a_person", "press_in_thread"),
        ("message_im", "press_in_im"),
        ("message_im", "press_on_the_root_of_a_thread"),
    ):
        assert read(prompt).events[0].address == read(press).events[0].address


@pytest.mark.parametrize(
    ("account", "names"),
    [
        ("T061EG9R6", ["shared_channel", "shared_channel_press", "press_in_channel", "workspace_of_an_organisation"]),
        ("E1", ["organisation_install", "press_in_an_organisation", "command_in_an_organisation"]),
    ],
)
def test_events_of_any_team_belong_to_our_own_account(account: str, names: list[str]) -> None:
    for name in names:
        [event] = read(name, PayloadReader("slack", account, "U0LAN0Z89")).events
        assert event.person is not None
        assert (event.address.account, event.person.account) == (account, account), name


def test_event_without_authorizations_is_of_our_own_account() -> None:
    fixture = loaded("shared_channel")
    del fixture["payload"]["authorizations"]
    [event] = PayloadReader("slack", "T061EG9R6").read(posted(fixture["payload"], "json")).events
    assert (event.address.account, str(event.person)) == ("T061EG9R6", "slack:T061EG9R6:U9OTHER")


@pytest.mark.parametrize("account", [None, "T061EG9R6"])
def test_an_installation_that_names_no_team_is_the_events_own(account: str | None) -> None:
    fixture = loaded("message_im")
    fixture["payload"]["authorizations"] = [{"user_id": "U0LAN0Z89", "is_bot": True}]
    [event] = PayloadReader("slack", account).read(posted(fixture["payload"], "json")).events
    assert event.address.account == "T061EG9R6"


def test_person_of_another_organisation_presses_as_they_write() -> None:
    reader = PayloadReader("slack", "T061EG9R6", "U0LAN0Z89")
    [written], [pressed] = read("shared_channel", reader).events, read("shared_channel_press", reader).events
    assert str(written.person) == str(pressed.person) == "slack:T061EG9R6:U9OTHER"
    [prompt] = read("message_channel_thread_of_a_person", reader).events
    assert pressed.address == prompt.address


def test_events_for_the_app_in_another_workspace_are_ignored() -> None:
    for account in ("T0ELSE", "E0ELSE"):
        for name in ("message_im", "message_mention", "organisation_install", "reaction_added"):
            parsed = read(name, PayloadReader("slack", account, "U0LAN0Z89"))
            assert (parsed.events, parsed.not_understood) == ((), False)


@pytest.mark.parametrize(
    ("text", "command", "words"),
    [
        ("<@U0LAN0Z89> /stop", "stop", ""),
        ("<@U0LAN0Z89>, /Total  this\nyear", "total", "this\nyear"),
        (" /new", "new", ""),
        ("/etc/hosts is gone", None, "/etc/hosts is gone"),
        ("/ stop", None, "/ stop"),
        ("please /stop", None, "please /stop"),
        ("//stop", None, "//stop"),
    ],
)
def test_a_command_can_be_written_where_slack_takes_none(text: str, command: str | None, words: str) -> None:
    fixture = loaded("app_mention_thread")
    fixture["payload"]["event"]["text"] = text
    [event] = READER.read(posted(fixture["payload"], "json")).events
    assert isinstance(event, Message)
    assert (event.command, event.text) == (command, words)


def test_path_at_the_start_of_a_channel_message_is_no_command() -> None:
    fixture = loaded("message_channel")
    fixture["payload"]["event"]["text"] = "/tmp is full"
    [event] = READER.read(posted(fixture["payload"], "json")).events
    assert isinstance(event, Message)
    assert (event.command, event.text) == (None, "/tmp is full")


def test_the_bot_that_is_known_counts_where_slack_names_none() -> None:
    fixture = loaded("message_mention")
    del fixture["payload"]["authorizations"]
    [event] = PayloadReader("slack", bot_user="U0LAN0Z89").read(posted(fixture["payload"], "json")).events
    assert isinstance(event, Message)
    assert (event.mentions_bot, event.text) == (True, "delete INV-42, ask @bo & me")


@pytest.mark.parametrize(
    "request_",
    [
        *(raw(body) for body in (b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe{}", b"[" * 100_000, b"payload=%7B%7D")),
        raw(b"payload=%ff", FORM),
        raw(b"\xff=1", FORM),
        raw(b"payload=%7B", FORM),
        raw(b"payload=", FORM),
        raw(b"payload=[]", FORM),
        raw(b"a=1&" * 101, FORM),
        raw(b"", "APPLICATION/JSON"),
    ],
)
def test_what_is_neither_json_nor_a_form_in_utf8_is_malformed(request_: WebhookRequest) -> None:
    with pytest.raises(Malformed):
        READER.read(request_)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"type": 1},
        {"type": "event_callback"},
        {"type": "event_callback", "event_id": "", "event": {"type": "message"}},
        {"type": "event_callback", "event_id": "E", "event": {"type": "message", "user": "U"}},
        {"type": "event_callback", "event_id": "E", "team_id": "T", "event": {"type": "message", "user": "U"}},
        {"type": "event_callback", "event_id": "E", "event": None},
        {"type": "event_callback", "event_id": "E", "event": {"type": "message", "files": [None]}},
        {"type": "event_callback", "event_id": "E", "event": {"type": "reaction_added", "item": 5}},
        {"type": "block_actions"},
        {"type": "block_actions", "user": {"id": "U"}, "container": {}, "actions": ["x"]},
        {"type": "url_verification"},
    ],
)
def test_authentic_but_of_no_shape_we_know_is_kept_as_such(payload: dict[str, Any]) -> None:
    for as_ in ("json", "payload"):
        parsed = READER.read(posted(payload, as_))
        assert (parsed.events, parsed.not_understood) == ((), True)


def test_message_with_half_a_surrogate_pair_is_read() -> None:
    """Slack cuts long texts, perhaps within an emoji; the half may be in a field that we do not read."""
    fixture = loaded("message_im")
    fixture["payload"]["event"] |= {"text": "delete \ud83d\ude00 INV-42 \ud83d", "blocks": [{"text": "\ude00"}]}
    for as_ in ("json", "payload"):
        [event] = READER.read(posted(fixture["payload"], as_)).events
        assert isinstance(event, Message)
        assert event.text == "delete 😀 INV-42 ?"


@pytest.mark.parametrize("ts", ["", "x", "999999999999.1", "1.2.3", "nan", "١.٢", "1" * 400])
def test_a_time_that_no_calendar_holds_is_unknown(ts: str) -> None:
    fixture = loaded("message_im")
    fixture["payload"]["event"]["ts"] = ts
    parsed = READER.read(posted(fixture["payload"], "json"))
    assert all(event.sent_at is None for event in parsed.events)
    assert parsed.not_understood == (ts == "")


def test_a_body_built_to_be_slow_is_read_at_once() -> None:
    for text in ("<" * 200_000, "<@U0LAN0Z89>" * 20_000, "<a|" * 70_000, " " * 200_000, ", " * 100_000):
        fixture = loaded("message_im")
        fixture["payload"]["event"]["text"] = text + "x"
        body = posted(fixture["payload"], "json")
        began = time.process_time()
        READER.read(body)
        assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("text", "spoils"),
    [
        ("~yes~", True),
        ("OK ~K7P2~", True),
        ("&gt; yes", True),
        ("ok\n&gt;yes", True),
        ("```yes```", True),
        ("yes", False),
        ("*yes* _please_ `K7P2`", False),
        ("5 &gt; 4", False),
        ("about ~5", False),
    ],
)
def test_marks_in_a_text_without_blocks_spoil_it(text: str, spoils: bool) -> None:
    payload = loaded("message_im")["payload"]
    payload["event"]["text"] = text
    payload["event"].pop("blocks", None)
    [message] = READER.read(posted(payload, "json")).events
    assert isinstance(message, Message)
    assert (message.spoiled_by, message.unknown_fields) == (("text",) if spoils else (), ())


@pytest.mark.parametrize("blocks", [[{"type": "hologram"}], [{"type": "rich_text", "elements": ["yes"]}], "yes", 7])
def test_blocks_that_nobody_knows_are_an_unknown_field(blocks: Any) -> None:
    payload = loaded("message_im")["payload"]
    payload["event"]["blocks"] = blocks
    [message] = READER.read(posted(payload, "json")).events
    assert isinstance(message, Message)
    assert (message.spoiled_by, len(message.unknown_fields)) == ((), 1)
    assert message.unknown_fields[0].startswith("blocks.")


# ── Only what Slack signed, within five minutes, is Slack's ──


SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
CHANNEL = SlackChannel("xoxb-1", SECRET)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BODY = '{"text": "für alle 🧾"}'.encode()


def signature(at: datetime = NOW) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    signed = SignatureVerifier(SECRET).generate_signature(timestamp=timestamp, body=BODY)
    assert signed is not None
    return {"x-slack-request-timestamp": timestamp, "x-slack-signature": signed}


def asked(headers: dict[str, str]) -> WebhookRequest:
    return WebhookRequest("POST", "https://bot.example/webhooks/slack", headers, BODY)


@pytest.mark.ledger("MISC-18")
def test_old_and_future_are_stale() -> None:
    for seconds in (0, 299, -299, 300, -300):
        CHANNEL.verify(asked(signature(at=NOW + timedelta(seconds=seconds))), NOW)
    for seconds in (301, -301, 86400 * 365, -86400 * 365):
        with pytest.raises(Stale):
            CHANNEL.verify(asked(signature(at=NOW + timedelta(seconds=seconds))), NOW)


def test_without_a_secret_of_ours_nobody_gets_in() -> None:
    with pytest.raises(Forged):
        SlackChannel("xoxb-1").verify(asked(signature()), NOW)


"""A header's value as the web server hands it on: bytes that are no UTF-8 come as lone surrogates."""
