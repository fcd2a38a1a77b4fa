"""A channel that refuses all that comes in its name says so, with the mend."""

from __future__ import annotations

import logging

import pytest

from channels import Forged, Stale
from gateway.web.refusals import Deaf


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def deaf(clock: Clock) -> Deaf:
    return Deaf(clock)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_slow_clock_is_told_within_a_minute(deaf: Deaf, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        deaf.refused("slack", Stale("too old"))
    (said,) = warned(caplog)
    assert "slack hears nothing" in said and "set this machine's clock by NTP" in said
    assert list(deaf.why) == ["slack"]


@pytest.mark.parametrize(
    ("channel", "name"), [("slack", "SLACK_SIGNING_SECRET"), ("telegram", "TELEGRAM_WEBHOOK_SECRET")]
)
def test_a_wrong_secret_is_named(deaf: Deaf, caplog: pytest.LogCaptureFixture, channel: str, name: str) -> None:
    for _ in range(3):
        deaf.refused(channel, Forged("no"))
    (said,) = warned(caplog)
    assert name in said


def test_a_channel_that_hears_something_is_not_deaf(deaf: Deaf, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever finds the URL can post to it."""
    deaf.took("slack")
    for _ in range(100):
        deaf.refused("slack", Forged("no"))
    assert (warned(caplog), dict(deaf.why)) == ([], {})
    clock.now += 601
    for _ in range(3):
        deaf.refused("slack", Forged("no"))
    assert list(deaf.why) == ["slack"]
    deaf.took("slack")
    assert dict(deaf.why) == {}


def test_few_refusals_over_a_long_time_are_not_reported(deaf: Deaf, clock: Clock) -> None:
    for _ in range(10):
        deaf.refused("telegram", Forged("no"))
        clock.now += 31
    assert dict(deaf.why) == {}


def test_deaf_channel_is_reported_once_an_hour(deaf: Deaf, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        for _ in range(5):
            deaf.refused("telegram", Forged("no"))
        clock.now += 1801
    assert len(warned(caplog)) == 2
