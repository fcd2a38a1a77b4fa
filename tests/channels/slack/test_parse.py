"""Payloads of the documented shapes, and bytes of no shape at all.

Each fixture names the page of Slack's documentation that its shape is taken from.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Malformed, Message, Parsed, WebhookRequest
from channels.events import event_from_json, event_to_json
from channels.slack.parse import PayloadReader

FIXTURES = sorted(Path(__file__).with_name("fixtures").glob("*.json"))
READER = PayloadReader("slack")
FORM = "application/x-www-form-urlencoded"


def request(payload: Any, as_: str) -> WebhookRequest:
    """As Slack sends it: JSON, JSON in a form, or a form."""
    match as_:
        case "json":
            kind, body = "application/json", json.dumps(payload)
        case "payload":
            kind, body = FORM, urlencode({"payload": json.dumps(payload)})
        case _:
            kind, body = f"{FORM}; charset=utf-8", urlencode(payload)
    return raw(body.encode(), kind)


def raw(body: bytes, kind: str = "application/json") -> WebhookRequest:
    return WebhookRequest("POST", "https://bot.example/webhooks/slack", {"content-type": kind}, body)


def loaded(name: str) -> Any:
    return json.loads(Path(__file__).with_name("fixtures").joinpath(f"{name}.json").read_text())


def read(name: str, reader: PayloadReader = READER) -> Parsed:
    fixture = loaded(name)
    return reader.read(request(fixture["payload"], fixture["as"]))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_payload_becomes_its_events(path: Path) -> None:
    fixture = json.loads(path.read_text())
    assert fixture["source"].startswith("https://docs.slack.dev/")
    parsed = READER.read(request(fixture["payload"], fixture["as"]))
    assert [event_to_json(event) for event in parsed.events] == fixture["expected"]["events"]
    assert parsed.not_understood == fixture["expected"]["not_understood"]
    assert (parsed.response.status, parsed.response.body.decode()) == (200, fixture["expected"]["body"])
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


def test_a_delivery_that_comes_again_has_the_same_ids() -> None:
    fixture = loaded("message_im")
    again = request(fixture["payload"], "json")
    again = WebhookRequest(
        again.method,
        again.url,
        {**again.headers, "x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"},
        again.body,
    )
    assert READER.read(again) == read("message_im")


def test_the_bot_that_is_known_counts_where_slack_names_none() -> None:
    fixture = loaded("message_mention")
    del fixture["payload"]["authorizations"]
    [event] = PayloadReader("slack", "U0LAN0Z89").read(request(fixture["payload"], "json")).events
    assert isinstance(event, Message)
    assert (event.mentions_bot, event.text) == (True, "delete INV-42, ask @bo & me")


@pytest.mark.parametrize(
    "request_",
    [
        *(raw(body) for body in (b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe{}", b"[" * 100_000, b"payload=%7B%7D")),
        raw(b'{"type": "\\ud800"}'),
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
        {"type": "block_actions"},
        {"type": "url_verification"},
    ],
)
def test_authentic_but_of_no_shape_we_know_is_kept_as_such(payload: dict[str, Any]) -> None:
    for as_ in ("json", "payload"):
        parsed = READER.read(request(payload, as_))
        assert (parsed.events, parsed.not_understood) == ((), True)


@pytest.mark.parametrize("ts", ["", "x", "999999999999.1", "1.2.3", "nan", "١.٢", "1" * 400])
def test_a_time_that_no_calendar_holds_is_unknown(ts: str) -> None:
    fixture = loaded("message_im")
    fixture["payload"]["event"]["ts"] = ts
    parsed = READER.read(request(fixture["payload"], "json"))
    assert all(event.sent_at is None for event in parsed.events)
    assert parsed.not_understood == (ts == "")


def test_a_body_built_to_be_slow_is_read_at_once() -> None:
    for text in ("<" * 200_000, "<@U0LAN0Z89>" * 20_000, "<a|" * 70_000, " " * 200_000, ", " * 100_000):
        fixture = loaded("message_im")
        fixture["payload"]["event"]["text"] = text + "x"
        body = request(fixture["payload"], "json")
        began = time.process_time()
        READER.read(body)
        assert time.process_time() - began < 0.5


@given(st.binary(max_size=200), st.sampled_from([FORM, "application/json", ""]))
def test_random_bytes_are_malformed_or_not_understood(body: bytes, kind: str) -> None:
    with contextlib.suppress(Malformed):
        assert READER.read(raw(body, kind)).events == ()


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
def test_a_payload_with_anything_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    fixture = json.loads(data.draw(st.sampled_from(FIXTURES)).read_text())
    payload = fixture["payload"]
    for place in data.draw(st.lists(st.sampled_from(places(payload)[1:]), min_size=1, max_size=3)):
        inner = payload
        try:
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = data.draw(ODD)
        except (LookupError, TypeError):
            continue  # an earlier change took this place away
    with contextlib.suppress(Malformed, UnicodeEncodeError):
        for event in READER.read(request(payload, fixture["as"])).events:
            assert event_from_json(event_to_json(event)) == event
