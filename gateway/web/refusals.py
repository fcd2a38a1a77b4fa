"""Channels that hear nothing: all that comes in their name is refused, since a secret is wrong or a clock is off."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from channels import NotOurs, Stale
from channels.catalogue import settings_of

__all__ = ["Deaf"]

log = logging.getLogger("askfirst.web")

_MINUTE: Final = 60.0
_REFUSED: Final = 3
"""So many refused within a minute, and none taken for ten, and the channel is deaf."""
_TAKEN_WITHIN: Final = 600.0
_SAID_SECONDS: Final = 3600.0


class Deaf:
    """Counts what a channel refuses as not proven. `now` counts seconds.

    Anybody can send what is refused, so a channel that takes something is never called deaf.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refused: dict[str, deque[tuple[float, Exception]]] = {}
        """Of each channel when something was refused, and with what."""
        self._taken: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def took(self, channel: str) -> None:
        self._taken[channel] = self._now()
        self._refused.pop(channel, None)

    def refused(self, channel: str, error: Exception) -> None:
        """Note it, and warn once an hour when the channel is deaf."""
        now = self._now()
        refused = self._refused.setdefault(channel, deque(maxlen=_REFUSED))
        refused.append((now, error))
        why = self._why(channel)
        if why is not None and now >= self._said.get(channel, -1.0):
            self._said[channel] = now + _SAID_SECONDS
            log.warning("%s hears nothing: all that came in its name in the last minute was refused. %s", channel, why)

    @property
    def why(self) -> Mapping[str, str]:
        """Each deaf channel with the mend."""
        return {channel: why for channel in self._refused if (why := self._why(channel)) is not None}

    def _why(self, channel: str) -> str | None:
        now, refused = self._now(), self._refused.get(channel, ())
        recent = [error for at, error in refused if now - at < _MINUTE]
        if len(recent) < _REFUSED or now - self._taken.get(channel, -_TAKEN_WITHIN) < _TAKEN_WITHIN:
            return None
        if all(isinstance(error, NotOurs) for error in recent):
            return str(recent[-1])
        if all(isinstance(error, Stale) for error in recent):
            return "Their signatures are too old: set this machine's clock by NTP"
        secrets = [
            setting.name for setting in settings_of(channel) if setting.secret and "webhook" in setting.needed_for
        ]
        return f"See whether {' or '.join(secrets) or 'its secret'} is what the platform has"
