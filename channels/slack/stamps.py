"""Slack's ``seconds.micros``: the id of a message and its time. A float would lose the last digit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

__all__ = ["moment", "position"]

_TS = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?", re.ASCII)
_EPOCH = datetime.fromtimestamp(0, UTC)


def moment(ts: str) -> datetime | None:
    """Return the datetime of a stamp. None for a text that is not a stamp and for a time out of range."""
    found = _TS.fullmatch(ts)
    if found is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=int(found[1]), microseconds=int((found[2] or "")[:6].ljust(6, "0")))
    except OverflowError:
        return None


def position(ts: str | None) -> Decimal | None:
    """Return the stamp as a number that orders the messages of a channel. None for a text that is not a stamp."""
    return Decimal(ts) if ts is not None and _TS.fullmatch(ts) else None
