"""The date and the number of a message: its time, and its place among the messages of a chat."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["moment", "position"]

_MESSAGE_ID = re.compile(r"\d{1,18}", re.ASCII)


def moment(seconds: object) -> datetime | None:
    """Return the datetime of a Unix time. None for 0, which marks an unknown date, and for a time out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds and isinstance(seconds, int) else None
    except (ValueError, OverflowError, OSError):
        return None


def position(message_id: str | None) -> int | None:
    """Return the number of a message, which grows within a chat, or None for an id that is no number."""
    return int(message_id) if message_id is not None and _MESSAGE_ID.fullmatch(message_id) else None
