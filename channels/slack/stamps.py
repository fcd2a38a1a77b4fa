"""Slack's ``seconds.micros``, the id and the time of a message in one. As a float it would lose the last digit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

__all__ = ["moment", "position"]

_TS = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?", re.ASCII)
_EPOCH = datetime.fromtimestamp(0, UTC)


def moment(ts: str) -> datetime | None:
    """Return the time that a stamp stands for, or None for what is no stamp and for what no calendar holds."""
    found = _TS.fullmatch(ts)
    if found is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=int(found[1]), microseconds=int((found[2] or "")[:6].ljust(6, "0")))
    except OverflowError:
        return None


def position(ts: str | None) -> Decimal | None:
    """Return where a message stands among those of its channel, or None for what is no stamp."""
    return Decimal(ts) if ts is not None and _TS.fullmatch(ts) else None
