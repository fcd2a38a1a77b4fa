"""Translation of Twilio's refusals to the errors of channels."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from channels.channel import MissingSetting, OptedOut, RateLimited, SendError, Unavailable, Undeliverable
from channels.twilio.parse import OPTED_OUT

__all__ = ["Patience", "bad_token", "refusal"]

_WAIT_SECONDS = 2.0
"""The wait after the first rate limit that names no time."""
_LONGEST_WAIT_SECONDS = 60.0
"""The wait after many of them."""

# https://www.twilio.com/docs/api/errors/{code}. Any other code of an answered 4xx is kept, and is permanent:
# 21211 and 21614 no such number, 21408 no permission for the region, 21617 too long, 63016 outside of WhatsApp's 24
# hours, 63024 not on WhatsApp, 30003 to 30008 not reachable, blocked, unknown, a landline, filtered, no reason known.
_RATE_CODES = frozenset({"20429", "14107", "63018"})
_QUEUE_FULL = frozenset({"21611", "30001"})
_UNAUTHORIZED = "20003"


def refusal(status: int, headers: Mapping[str, str], payload: str, setting: str = "TWILIO_AUTH_TOKEN") -> SendError:
    """Return the SendError for an answer that is not a success. It carries Twilio's code and none of its text.

    `setting`: the setting that holds the password of the login.

    RateLimited has a wait of 0 seconds when the answer names none, which is usual: `Patience` supplies one.
    """
    code, is_twilios = _read(payload)
    if status == 429 or code in _RATE_CODES:
        return RateLimited(code or "429", retry_after_seconds=_wait(headers.get("Retry-After", "")))
    if status >= 500 or status < 400 or code in _QUEUE_FULL:
        return Unavailable(code or f"http_{status}")
    if not is_twilios and status != 413:
        return Unavailable(f"http_{status}")
    if status == 401 or code == _UNAUTHORIZED:
        return Unavailable("unauthorized", mend=bad_token("unauthorized", setting))
    if code == OPTED_OUT:
        return OptedOut(code)
    return Undeliverable(code or f"http_{status}")


def bad_token(code: str, setting: str = "TWILIO_AUTH_TOKEN") -> MissingSetting:
    """Return the error with the mend of a password that Twilio refuses with this code."""
    both = " with TWILIO_API_KEY" if setting == "TWILIO_API_SECRET" else ""
    mend = f"Twilio does not take it{both} for this account ({code}): copy it again from the console"
    return MissingSetting(setting, mend)


def _read(payload: str) -> tuple[str | None, bool]:
    """Return the code of a refusal, and whether it is Twilio's own and not from a proxy or a firewall.

    https://www.twilio.com/docs/usage/twilios-response: not each refusal has a code.
    """
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return None, False
    if isinstance(code := answer.get("code"), int):
        return str(code), True
    return None, isinstance(answer.get("status"), int) and isinstance(answer.get("message"), str)


def _wait(header: str) -> float:
    return float(header) if header.isdecimal() and len(header) < 6 else 0.0


class Patience:
    """Exponential backoff of one account under rate limits: 2 to 60 seconds, reset when a message is accepted.

    https://www.twilio.com/docs/api/errors/20429 asks for it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wait = _WAIT_SECONDS / 2
        self._until = 0.0

    def longer(self, limited: RateLimited) -> RateLimited:
        """Return the error with a wait. Rate limits of concurrent calls count as one."""
        if limited.retry_after_seconds:
            return limited
        now = self._clock()
        if now >= self._until:
            self._wait = min(2 * self._wait, _LONGEST_WAIT_SECONDS)
            self._until = now + self._wait
        return RateLimited(limited.code, retry_after_seconds=self._wait)

    def over(self) -> None:
        self._wait, self._until = _WAIT_SECONDS / 2, 0.0
