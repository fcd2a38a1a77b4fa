"""Events as they are stored: two ways to write them, one to read them."""

from __future__ import annotations

import json
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import (
    Address,
    ButtonPress,
    ConversationMoved,
    DeliveryReport,
    Event,
    Message,
    MessageEdited,
    OptOut,
    Reaction,
)
from channels.events import event_from_json, event_to_json, event_to_text

MOMENTS = st.datetimes(timezones=st.just(UTC))
KINDS = (Message, ButtonPress, MessageEdited, Reaction, DeliveryReport, OptOut, ConversationMoved)
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
