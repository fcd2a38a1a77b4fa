"""Retries of a change: read, change and commit again after a Conflict, with a backoff while the store is unavailable.

A commit without an answer may have been applied: `Attempt.outcome_unknown` tells the next attempt to read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from gateway.store.errors import Conflict, StoreUnavailable

_CONFLICTS = 50
"""The most conflicts of a change before the error is raised."""
_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0)


class Attempt:
    """An attempt at a change: ``async with attempt:`` around reading, changing and committing.

    The next attempt follows after a Conflict, and after a StoreUnavailable when the change is patient. Any other error,
    and the last of these errors, is raised. Without an error there is no next attempt.
    """

    def __init__(self, waits_left: Iterator[float], conflicts_left: int, *, outcome_unknown: bool) -> None:
        self._waits_left, self._conflicts_left = waits_left, conflicts_left
        self.outcome_unknown = outcome_unknown
        """An earlier attempt may have been committed: the answer was lost."""
        self.conflicted = self.unanswered = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Conflict) and self._conflicts_left:
            self.conflicted = True
        elif isinstance(error, StoreUnavailable):
            wait = next(self._waits_left, None)
            if wait is None:
                return False
            await asyncio.sleep(wait)
            self.unanswered = True
        return self.conflicted or self.unanswered


def attempts(*, patient: bool = False) -> Iterator[Attempt]:
    """Yield attempts at a change until an attempt succeeds or raises.

        for attempt in attempts():
            async with attempt:
                ...

    `patient`: wait for an unavailable store, for about half a minute in all. Otherwise raise at once.
    """
    waits_left, conflicts_left, outcome_unknown = iter(_WAITS_SECONDS) if patient else iter(()), _CONFLICTS, False
    while True:
        attempt = Attempt(waits_left, conflicts_left, outcome_unknown=outcome_unknown)
        yield attempt
        if not (attempt.conflicted or attempt.unanswered):
            return
        conflicts_left -= attempt.conflicted
        outcome_unknown = outcome_unknown or attempt.unanswered
