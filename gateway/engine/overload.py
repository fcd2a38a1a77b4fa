"""Overload: the store refuses new messages. It is logged once a minute with the largest mailboxes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from gateway.store.base import Store
from gateway.store.errors import Overloaded, StoreError

__all__ = ["Overload"]

log = logging.getLogger("askfirst.inbox")

_MINUTE: Final = 60.0
_HOLDERS: Final = 5


class Overload:
    """The last refusal of this process. `now` counts seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._why = ""
        self._seen, self._said = -_MINUTE, -_MINUTE

    @property
    def why(self) -> str | None:
        """Return why a message was refused within the last minute, or None."""
        return self._why if self._now() - self._seen < _MINUTE else None

    async def refused(self, error: Overloaded, store: Store) -> None:
        """Note that a message was refused. Log it once a minute, with the conversations in which most events wait."""
        now = self._now()
        self._why, self._seen = str(error), now
        if now - self._said < _MINUTE:
            return
        self._said = now
        try:
            fullest = ", ".join(f"{found.conversation}: {found.waiting}" for found in await store.mailboxes(_HOLDERS))
        except StoreError:
            fullest = "the store cannot say"
        log.error(
            "new messages of everybody are refused: %s. Most waits in %s. `askfirst waiting` shows it and mends it",
            error,
            fullest or "none",
        )
