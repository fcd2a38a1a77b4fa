"""Events, addresses and fields of messages: the stored forms, the spoiling fields, and the order of messages."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import (
    Address,
    ButtonPress,
    CanOrder,
    Capabilities,
    ConversationMoved,
    DeliveryReport,
    Event,
    Feedback,
    Message,
    MessageEdited,
    OptOut,
    Person,
    Reaction,
    Receipt,
)
from channels.direct import DirectChannel
from channels.events import event_from_json, event_to_json, event_to_text
from channels.fields import Fields
from channels.slack import SlackChannel
from channels.slack.parse import FIELDS as SLACKS
from channels.telegram import TelegramChannel
from channels.telegram.parse import FIELDS as TELEGRAMS
from channels.telegram.parse import SERVICE
from channels.twilio import SmsChannel, WhatsAppChannel
from channels.twilio.parse import FIELDS as TWILIO
from channels.webchat import WebChatChannel
from tests.channels.telegram.case import DOCUMENTED

MOMENTS = st.datetimes(timezones=st.just(UTC))
KINDS = (Message, ButtonPress, Feedback, MessageEdited, Reaction, DeliveryReport, OptOut, ConversationMoved)
NAMES = st.lists(st.text(), max_size=3).map(tuple)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    [st.builds(kind, sent_at=st.none() | MOMENTS) for kind in KINDS]
    + [st.builds(Message, spoiled_by=NAMES, unknown_fields=NAMES, replayed=st.booleans(), after=st.none() | st.text())]
)


@given(EVENTS)
def test_event_text_is_its_stored_form_and_is_read_back(event: Event) -> None:
    text = event_to_text(event)
    assert json.loads(text) == event_to_json(event)
    assert event_from_json(json.loads(text)) == event


def test_event_with_a_lone_surrogate_cannot_become_text() -> None:
    event = Message(
        event_ids=("1",),
        address=Address(channel="slack", account="T1", place="C1"),
        person=None,
        text="half an emoji \ud83d",
    )
    with pytest.raises(ValueError, match="surrogates"):
        event_to_text(event)
    assert event_from_json(event_to_json(event)) == event


# ── Written forms of people and places: read back unchanged, so two forms are never equal by mistake ──


ESCAPES = st.lists(st.sampled_from(["%", ":", "/", "25", "3A", "2F", "3a", "x"]), min_size=1, max_size=4)
PARTS = st.one_of(ESCAPES.map("".join), st.text(min_size=1, max_size=6))
ADDRESSES = st.builds(
    Address, channel=PARTS, account=PARTS, place=PARTS, thread=st.none() | PARTS, group=st.just(False)
)
PEOPLE = st.builds(Person, channel=PARTS, account=PARTS, user_id=PARTS)


@given(ADDRESSES)
def test_an_address_is_read_back_unchanged(address: Address) -> None:
    assert Address.parse(str(address)) == address


@given(PEOPLE)
def test_a_person_is_read_back_unchanged(person: Person) -> None:
    assert Person.parse(str(person)) == person


@pytest.mark.parametrize(
    ("account", "user_id", "written"),
    [
        ("a:b", "c", "app:a%3Ab:c"),
        ("a", "b:c", "app:a:b:c"),
        ("a%3Ab", "c", "app:a%253Ab:c"),
        ("a", "b%3Ac", "app:a:b%3Ac"),
        ("a/b", "c/d", "app:a/b:c/d"),
    ],
)
def test_only_ambiguous_ids_are_escaped_when_written(account: str, user_id: str, written: str) -> None:
    assert str(Person(channel="app", account=account, user_id=user_id)) == written


@pytest.mark.parametrize(
    "address",
    [
        Address(channel="telegram", account="123456", place="-1001234567890", thread="7"),
        Address(channel="slack", account="T024BE7LD", place="C024BE91L", thread="1712000000.000100"),
        Address(channel="sms", account="+15550006666", place="+15550005555"),
        Address(channel="whatsapp", account="+15550006666", place="+15550005555"),
        Address(channel="sms", account="ACME 100%", place="12345"),
        Address(channel="webchat", account="local", place="Zm9v-_Yg"),
        Address(channel="app", account="-", place="user:ana"),
        Address(channel="app", account="crm", place="case 5"),
        Address(channel="app", account="crm/eu", place="case%205", thread="a/b:c"),
        Address(channel="test", account="bot", place="#ops"),
    ],
    ids=str,
)
def test_plain_address_keeps_its_stored_form(address: Address) -> None:
    thread = f"/{address.thread}" if address.thread is not None else ""
    assert str(address) == f"{address.channel}:{address.account}:{address.place}{thread}"
    assert Address.parse(str(address)) == address


def test_a_place_with_a_slash_is_not_a_thread() -> None:
    place = Address(channel="app", account="-", place="a/b")
    thread = replace(place, place="a", thread="b")
    assert (str(place), str(thread)) == ("app:-:a%2Fb", "app:-:a/b")


@pytest.mark.parametrize("text", ["", "x", "x:y", ":y:z", "x::z", "x:y:", "user:ana"])
def test_text_without_three_parts_is_no_person(text: str) -> None:
    with pytest.raises(ValueError, match="not a person"):
        Person.parse(text)


# ── The order of messages, by each platform's own rules ──


ADDRESS = Address(channel="any", account="bot", place="ana")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TELEGRAM, SLACK = TelegramChannel("7:AAtoken"), SlackChannel("xoxb-1")
PAGE = WebChatChannel(keys=[b"k" * 32], hosts=["localhost"])


def message(message_id: str | None = None, sent_at: datetime | None = None, after: str | None = None) -> Message:
    return Message(
        event_ids=("1",), address=ADDRESS, person=None, text="yes", message_id=message_id, sent_at=sent_at, after=after
    )


def test_each_channel_declares_how_a_bare_yes_is_ordered() -> None:
    channels = (TelegramChannel, SlackChannel, WebChatChannel, DirectChannel, WhatsAppChannel, SmsChannel)
    said = [channel.capabilities.bare_yes for channel in channels]
    assert said == ["ordered", "ordered", "ordered", "ordered", "reported", "never"]
    assert Capabilities(max_text=1).bare_yes == "never"
    assert [issubclass(channel, CanOrder) for channel in channels] == [each == "ordered" for each in said]


@pytest.mark.parametrize(
    ("theirs", "seconds", "follows"),
    [
        ("10", 0, True),  # as text "10" would come before "9"
        ("10", 3600, True),
        ("9", 0, False),
        ("8", 0, False),
        ("8", 3600, False),
        ("10", -1, False),  # a number alone is not believed: it was written before
    ],
)
def test_telegram_goes_by_number_and_by_date(theirs: str, seconds: int, follows: bool) -> None:
    ours = Receipt(message_id="9", sent_at=NOON)
    assert TELEGRAM.follows(message(theirs, NOON + timedelta(seconds=seconds)), ours) is follows


@pytest.mark.parametrize(("theirs", "ours"), [(NOON, None), (None, NOON), (None, None)])
def test_telegram_goes_by_number_where_a_date_is_unknown(theirs: datetime | None, ours: datetime | None) -> None:
    assert TELEGRAM.follows(message("10", theirs), Receipt(message_id="9", sent_at=ours))
    assert not TELEGRAM.follows(message("9", theirs), Receipt(message_id="10", sent_at=ours))


@pytest.mark.parametrize(
    ("theirs", "ours", "follows"),
    [
        ("1767225600.000002", "1767225600.000001", True),
        ("1767225600.000001", "1767225600.000001", False),
        ("1767225600.000001", "1767225600.000002", False),
        ("1767225600.9", "1767225600.10", True),  # decimals, not numbers
        ("10000000000.0", "9999999999.9", True),  # as text it would come before
        ("176722560012.000001", "176722560012.000000", True),  # beyond the precision of a float
        ("1767225600", "1767225599.999999", True),
    ],
)
def test_slack_compares_stamps_exactly(theirs: str, ours: str, follows: bool) -> None:
    assert SLACK.follows(message(theirs), Receipt(message_id=ours)) is follows


@pytest.mark.parametrize("channel", [PAGE, DirectChannel()])
def test_web_chat_message_follows_only_the_part_it_saw_last(channel: WebChatChannel | DirectChannel) -> None:
    ours = Receipt(message_id="part 7")
    assert channel.follows(message("c1", after="part 7"), ours)
    for other in (message("c1", after="part 6"), message("c1"), message("part 7"), message()):
        assert not channel.follows(other, ours)
    assert not channel.follows(message("c1"), Receipt(message_id=None))


# ── The fields of messages: each that is documented is known, and an ordinary message is stored without any of it ──


KNOWN = Fields(harmless=frozenset({"text"}), spoiling=frozenset({"quote", "share"}))


@pytest.mark.parametrize("fields", [TELEGRAMS, SLACKS, TWILIO])
def test_no_field_is_both_harmless_and_spoiling(fields: Fields) -> None:
    assert fields.harmless.isdisjoint(fields.spoiling)


def test_every_field_of_the_vendors_message_is_known() -> None:
    """A release of python-telegram-bot with more fields fails here: add each new field to the right set."""
    known = TELEGRAMS.harmless | TELEGRAMS.spoiling
    assert {"sender" if name == "from" else name for name in DOCUMENTED} - known == set()
    assert TELEGRAMS.spoiling >= SERVICE


@pytest.mark.parametrize("value", [None, False, "", []])
def test_an_empty_spoiling_field_does_not_spoil(value: object) -> None:
    assert KNOWN.judge({"text": "yes", "quote": value}) == ((), ())


@pytest.mark.parametrize("value", [True, 0, "0", {}, [None], {"text": "Shall I?"}])
def test_a_spoiling_field_that_says_something_spoils(value: object) -> None:
    assert KNOWN.judge({"share": True, "text": "yes", "quote": value}) == (("quote", "share"), ())


def test_an_unknown_field_counts_unless_null_or_blank() -> None:
    message = {"text": "yes", "b": False, "a": 0, "c": [], "gone": None, "blank": ""}
    assert KNOWN.judge(message) == ((), ("a", "b", "c"))


def test_an_ordinary_message_is_stored_without_these_fields() -> None:
    address = Address(channel="test", account="bot", place="ana")
    stored = event_to_json(Message(event_ids=("1",), address=address, person=None, text="yes"))
    assert stored.keys() == {"kind", "event_ids", "address", "person", "text"}
