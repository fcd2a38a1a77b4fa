"""What Twilio answers, in our words: the one place where it is translated."""

from __future__ import annotations

import json
from collections.abc import Mapping

from channels.channel import RateLimited, SendError, Unavailable, Undeliverable

__all__ = ["refusal"]

_WAIT_SECONDS = 2.0
"""After a 429 that names no wait."""

# https://www.twilio.com/docs/api/errors/{code}. Any other code of an answered 4xx stays what it is, and is permanent:
# 21610 opted out, 21211 and 21614 no such number, 21408 no permission for the region, 21617 too long, 63016 outside of
# WhatsApp's 24 hours, 63024 not on WhatsApp.
_RATE_CODES = frozenset({"20429", "14107", "63018"})
_QUEUE_FULL = frozenset({"21611", "30001"})
_UNAUTHORIZED = "20003"


def refusal(status: int, headers: Mapping[str, str], payload: str) -> SendError:
    """The error for an answer that is no success. It carries Twilio's number for it and none of its words."""
    code = _code(payload)
    if status == 429 or code in _RATE_CODES:
        return RateLimited(code or "429", retry_after_seconds=_wait(headers.get("Retry-After", "")))
    if status >= 500 or status < 400 or code in _QUEUE_FULL:
        return Unavailable(code or f"http_{status}")
    if status == 401 or code == _UNAUTHORIZED:
        return Undeliverable("unauthorized")
    return Undeliverable(code or f"http_{status}")


def _code(payload: str) -> str | None:
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    code = answer.get("code") if isinstance(answer, dict) else None
    return str(code) if isinstance(code, int) else None


def _wait(header: str) -> float:
    return float(header) if header.isdecimal() and len(header) < 6 else _WAIT_SECONDS
