"""One line a second of each kind, with the count of omitted lines."""

from __future__ import annotations

import logging

import pytest

from gateway.logs import RateLimitFilter


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def log(now: list[float]) -> logging.Logger:
    logger = logging.getLogger("tests.ratelimit")
    logger.filters[:] = [
        RateLimitFilter(lambda record: record.msg if record.levelno >= logging.WARNING else None, lambda: now[0])
    ]
    return logger


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int | None]]:
    return [(record.msg, getattr(record, "left_out", None)) for record in caplog.records]


def test_one_line_a_second_of_each_kind_counts_the_omitted_lines(
    log: logging.Logger, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("full", "full", "slow", "full"):
        log.warning(text)
    assert told(caplog) == [("full", 0), ("slow", 0)]
    now[0] += 0.99
    log.warning("full")
    now[0] += 0.02
    log.warning("full")
    log.warning("slow")
    assert told(caplog)[2:] == [("full", 3), ("slow", 0)]


def test_records_without_a_kind_are_not_limited(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            log.info("served")
    assert told(caplog) == [("served", None)] * 3
