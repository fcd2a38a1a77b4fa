"""The fields of messages: each that is documented is known, and an ordinary message is stored without any of it."""

from __future__ import annotations

import pytest

from channels import Address, Message
from channels.events import event_to_json
from channels.fields import Fields
from channels.slack.fields import FIELDS as SLACK
from channels.telegram.fields import FIELDS as TELEGRAM
from channels.telegram.fields import SERVICE
from channels.twilio.fields import FIELDS as TWILIO
from tests.channels.telegram.fields import DOCUMENTED

KNOWN = Fields(harmless=frozenset({"text"}), spoiling=frozenset({"quote", "share"}))


@pytest.mark.parametrize("fields", [TELEGRAM, SLACK, TWILIO])
def test_no_field_is_both_harmless_and_spoiling(fields: Fields) -> None:
    assert fields.harmless.isdisjoint(fields.spoiling)


def test_every_field_of_the_vendors_message_is_known() -> None:
    """A release of python-telegram-bot that knows more makes this fail: put the new field where it belongs."""
    known = TELEGRAM.harmless | TELEGRAM.spoiling
    assert {"sender" if name == "from" else name for name in DOCUMENTED} - known == set()
    assert TELEGRAM.spoiling >= SERVICE


@pytest.mark.parametrize("value", [None, False, "", []])
def test_a_spoiling_field_that_says_nothing_spoils_nothing(value: object) -> None:
    assert KNOWN.judge({"text": "yes", "quote": value}) == ((), ())


@pytest.mark.parametrize("value", [True, 0, "0", {}, [None], {"text": "Shall I?"}])
def test_a_spoiling_field_that_says_something_spoils(value: object) -> None:
    assert KNOWN.judge({"share": True, "text": "yes", "quote": value}) == (("quote", "share"), ())


def test_an_unknown_field_counts_whatever_it_says_but_null() -> None:
    message = {"text": "yes", "b": False, "a": 0, "c": [], "gone": None, "blank": ""}
    assert KNOWN.judge(message) == ((), ("a", "b", "c"))


def test_an_ordinary_message_is_stored_without_these_fields() -> None:
    address = Address(channel="test", account="bot", place="ana")
    stored = event_to_json(Message(event_ids=("1",), address=address, person=None, text="yes"))
    assert stored.keys() == {"kind", "event_ids", "address", "person", "text"}
