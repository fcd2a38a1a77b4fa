"""The promised figures, as shipped. Other tests set shorter ones, to save time."""

from __future__ import annotations

import pytest

from channels import Capabilities, Pace
from channels.slack import SlackChannel
from channels.telegram import TelegramChannel
from channels.twilio import SmsChannel, WhatsAppChannel
from gateway.engine.context import EngineContext
from gateway.engine.leases import BEATS
from gateway.engine.turns.runner import DEADLINE_SECONDS
from gateway.web.limits import MAX_BODY_BYTES, ClientLimits
from gateway.web.webhooks import ACCEPT_SECONDS


@pytest.mark.parametrize(
    ("capabilities", "pace"),
    [
        # https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this
        (TelegramChannel.capabilities, Pace(account_per_second=30, place_per_second=1, group_per_minute=20)),
        # https://docs.slack.dev/apis/web-api/rate-limits
        (SlackChannel.capabilities, Pace(place_per_second=1)),
        # https://www.twilio.com/docs/api/errors/14107; how many a number sends a second Twilio sees to itself
        (SmsChannel.capabilities, Pace(place_per_second=1)),
        # https://www.twilio.com/docs/whatsapp/api#rate-limiting
        (WhatsAppChannel.capabilities, Pace(account_per_second=80, place_per_second=1)),
    ],
    ids=["telegram", "slack", "sms", "whatsapp"],
)
def test_pace_is_the_limit_of_the_platform(capabilities: Capabilities, pace: Pace) -> None:
    assert capabilities.pace == pace


def test_a_platform_is_answered_within_a_quarter_of_a_second() -> None:
    assert ACCEPT_SECONDS == 0.25


def test_a_turn_has_a_minute() -> None:
    assert DEADLINE_SECONDS == 60.0


def test_two_beats_may_fail_before_a_lease_is_lost() -> None:
    assert (EngineContext.__dataclass_fields__["lease_seconds"].default, BEATS) == (6.0, 3)


def test_limits_of_one_client_are_as_promised() -> None:
    limits = ClientLimits()
    assert (limits.request_seconds, limits.connections, limits.headers, MAX_BODY_BYTES) == (10.0, 400, 64, 256 * 1024)
