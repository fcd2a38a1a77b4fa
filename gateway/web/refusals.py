"""Detection of channels that refuse every request, because a secret is wrong or a clock is off."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from channels import NotOurs, Stale
from channels.catalogue import settings_of

__all__ = ["RefusalMonitor"]

log = logging.getLogger("askfirst.web")

_MINUTE: Final = 60.0
_REFUSED: Final = 3
"""Refusals within a minute that are reported, if the channel also accepted no request for ten minutes."""
_ACCEPTED_WITHIN: Final = 600.0
_SAID_SECONDS: Final = 3600.0


class RefusalMonitor:
    """Counts the requests that each channel refused as unproven, and finds the channels that refuse every request.

    `now` is a monotonic clock in seconds. Anybody can send requests that are refused, so a channel that accepts
    requests is never reported.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refused: dict[str, deque[tuple[float, Exception]]] = {}
        """Times and errors of the last refusals, by channel."""
        self._accepted: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def accepted(self, channel: str) -> None:
        """Record an accepted request. It ends the count of refusals."""
        self._accepted[channel] = self._now()
        self._refused.pop(channel, None)

    def refused(self, channel: str, error: Exception) -> None:
        """Record a refusal. Log a warning, at most once an hour, when the channel refuses everything."""
        now = self._now()
        refused = self._refused.setdefault(channel, deque(maxlen=_REFUSED))
        refused.append((now, error))
        why = self._why(channel)
        if why is not None and now >= self._said.get(channel, -1.0):
            self._said[channel] = now + _SAID_SECONDS
            log.warning("%s hears nothing: all that came in its name in the last minute was refused. %s", channel, why)

    @property
    def why(self) -> Mapping[str, str]:
        """Return the channels that refuse every request, each with the way to mend it."""
        return {channel: why for channel in self._refused if (why := self._why(channel)) is not None}

    def _why(self, channel: str) -> str | None:
        now, refused = self._now(), self._refused.get(channel, ())
        recent = [error for at, error in refused if now - at < _MINUTE]
        if len(recent) < _REFUSED or now - self._accepted.get(channel, -_ACCEPTED_WITHIN) < _ACCEPTED_WITHIN:
            return None
        if all(isinstance(error, NotOurs) for error in recent):
            return str(recent[-1])
        if all(isinstance(error, Stale) for error in recent):
            return "Their signatures are too old: set this machine's clock by NTP"
        secrets = [
            setting.name for setting in settings_of(channel) if setting.secret and "webhook" in setting.needed_for
        ]
        return f"See whether {' or '.join(secrets) or 'its secret'} is what the platform has"
