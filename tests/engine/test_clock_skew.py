"""A machine clock far ahead has no effect until a platform agrees with the clock."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from gateway.engine.clock import Skew, skew_of
from gateway.store.clock_steps import elapsed_ns
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Clock
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key

pytestmark = pytest.mark.both_stores

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
DAY = 86_400


@pytest.fixture(autouse=True)
def kept_on() -> str:
    """Leave the choice of the store to each test."""
    return ""


class Elapsed:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def http(at: datetime) -> str:
    return format_datetime(at, usegmt=True)


@pytest.mark.parametrize("seconds", [400, -400])
def test_a_clock_that_is_minutes_off_is_told_once_with_the_mend(seconds: int, caplog: pytest.LogCaptureFixture) -> None:
    elapsed, trusted = Elapsed(), []
    skew = Skew(lambda: trusted.append(1), lambda: NOW, elapsed)
    for _ in range(3):
        skew.observe("slack.com", http(NOW - timedelta(seconds=seconds)))
        elapsed.now += 31
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "400 seconds" in record.getMessage() and "Set it by NTP" in record.getMessage()
    assert skew.is_off and trusted


def test_only_a_clock_that_agrees_with_a_platform_is_trusted() -> None:
    trusted: list[int] = []
    skew = Skew(lambda: trusted.append(1), lambda: NOW, Elapsed())
    skew.observe("a", http(NOW - timedelta(days=900)))
    skew.observe("b", "no date at all")
    skew.observe("c", None)
    assert not trusted
    skew.observe("d", http(NOW + timedelta(seconds=2)))
    assert trusted and not skew.is_off


def test_invalid_date_gives_no_skew() -> None:
    assert skew_of("Mon", NOW) is None


# ── a start with a clock that is far ahead ──


class Wall:
    """The clock of the machine."""

    def __init__(self) -> None:
        self.days = 0

    def __call__(self) -> int:
        return int((NOW.timestamp() + self.days * DAY) * 1e9)


async def of_two_days(path: Path, wall: Wall) -> SqliteStore:
    store = SqliteStore(path)
    store._clock = Clock(wall, elapsed_ns)
    await store.open()
    return store


async def test_clock_far_ahead_expires_no_record_of_a_file(tmp_path: Path) -> None:
    wall = Wall()
    store = await of_two_days(tmp_path / "a.db", wall)
    await store.commit(Transaction(partition="00", puts={"r": Put(1, ttl_seconds=30 * DAY)}))
    await store.close()
    wall.days = 900
    store = await of_two_days(tmp_path / "a.db", wall)
    assert 899 * DAY < store.clock_ahead_seconds < 901 * DAY
    assert abs((await store.now() - NOW).total_seconds()) < 60
    assert (await store.get([Key("00", "r")]))[Key("00", "r")].value == 1
    await store.close()
    wall.days = 1
    store = await of_two_days(tmp_path / "a.db", wall)
    store.trust_clock()
    assert abs((await store.now() - NOW).total_seconds() - DAY) < 60, "the way back: no moment of 2029 has stayed"
    await store.close()


async def test_file_closed_for_long_follows_a_trusted_clock(tmp_path: Path) -> None:
    wall = Wall()
    store = await of_two_days(tmp_path / "a.db", wall)
    await store.commit(Transaction(partition="00", puts={"r": Put(1, ttl_seconds=30 * DAY)}))
    await store.close()
    wall.days = 60
    store = await of_two_days(tmp_path / "a.db", wall)
    store.trust_clock()
    assert store.clock_ahead_seconds == 0
    assert abs((await store.now() - NOW).total_seconds() - 60 * DAY) < 60
    assert (await store.get([Key("00", "r")]))[Key("00", "r")].version == 0
    await store.close()


async def test_clock_less_than_a_day_ahead_is_followed_at_once(tmp_path: Path) -> None:
    wall = Wall()
    store = await of_two_days(tmp_path / "a.db", wall)
    await store.close()
    wall.days = 0.9  # type: ignore[assignment]
    store = await of_two_days(tmp_path / "a.db", wall)
    assert store.clock_ahead_seconds == 0
    await store.close()


async def test_clock_far_ahead_expires_no_record_on_redis(redis_url: str, prefix: str) -> None:
    """The clock of the tests' server is never set: the stored record is older instead."""
    before = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    before.offset_seconds = -900 * DAY
    await before.open()
    await before.commit(Transaction(partition="00", puts={"r": Put(1, ttl_seconds=30 * DAY)}))
    then = await before.now()
    await before.close()
    store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    await store.open()
    assert store.clock_ahead_seconds > 899 * DAY
    assert abs((await store.now() - then).total_seconds()) < 60
    await store.run_timers()
    assert (await store.get([Key("00", "r")]))[Key("00", "r")].value == 1
    store.trust_clock()
    assert (await store.now() - then).total_seconds() > 899 * DAY
    assert (await store.get([Key("00", "r")]))[Key("00", "r")].version == 0
    await store.close()
