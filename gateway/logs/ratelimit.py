"""A rate limit for log lines that any remote client can trigger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable


class RateLimitFilter(logging.Filter):
    """A logging filter that passes one record a second of each kind.

    `kind` returns the kind of a record, or None for a record that always passes. A record that passes gets `left_out`,
    the number of records of its kind that were dropped since the last one. `now` returns seconds.
    """

    def __init__(
        self, kind: Callable[[logging.LogRecord], Hashable | None], now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._kind, self._now = kind, now
        self._next: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = self._kind(record), self._now()
        if kind is None:
            return True
        if now < self._next.get(kind, now):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._next[kind] = now + 1.0
        record.left_out = self._left_out.pop(kind, 0)
        return True
