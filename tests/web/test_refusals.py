"""A channel that refuses all that comes in its name says so, with the mend."""

from __future__ import annotations

import logging

import pytest

from channels import Forged, Stale
from gateway.web.webhooks import RefusalMonitor


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> RefusalMonitor:
    return RefusalMonitor(clock)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_slow_clock_is_told_within_a_minute(monitor: RefusalMonitor, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        monitor.refused("slack", Stale("too old"))
    (said,) = warned(caplog)
    assert "slack hears nothing" in said and "set this machine's clock by NTP" in said
    assert list(monitor.why) == ["slack"]


@pytest.mark.parametrize(
    ("channel", "name"), [("slack", "SLACK_SIGNING_SECRET"), ("telegram", "TELEGRAM_WEBHOOK_SECRET")]
)
def test_a_wrong_secret_is_named(
    monitor: RefusalMonitor, caplog: pytest.LogCaptureFixture, channel: str, name: str
) -> None:
    for _ in range(3):
        monitor.refused(channel, Forged("no"))
    (said,) = warned(caplog)
    assert name in said


def test_a_channel_that_hears_something_is_not_deaf(
    monitor: RefusalMonitor, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever finds the URL can post to it."""
    monitor.accepted("slack")
    for _ in range(100):
        monitor.refused("slack", Forged("no"))
    assert (warned(caplog), dict(monitor.why)) == ([], {})
    clock.now += 601
    for _ in range(3):
        monitor.refused("slack", Forged("no"))
    assert list(monitor.why) == ["slack"]
    monitor.accepted("slack")
    assert dict(monitor.why) == {}


def test_few_refusals_over_a_long_time_are_not_reported(monitor: RefusalMonitor, clock: Clock) -> None:
    for _ in range(10):
        monitor.refused("telegram", Forged("no"))
        clock.now += 31
    assert dict(monitor.why) == {}


def test_deaf_channel_is_reported_once_an_hour(
    monitor: RefusalMonitor, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        for _ in range(5):
            monitor.refused("telegram", Forged("no"))
        clock.now += 1801
    assert len(warned(caplog)) == 2
