"""What was written after what, by each platform's own order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from channels import Address, CanOrder, Capabilities, Message, Receipt
from channels.direct import DirectChannel
from channels.slack import SlackChannel
from channels.telegram import TelegramChannel
from channels.twilio import SmsChannel, WhatsAppChannel
from channels.webchat import WebChatChannel

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
        ("176722560012.000001", "176722560012.000000", True),  # beyond what a float tells apart
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
