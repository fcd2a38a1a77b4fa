"""Translation of Slack's refusals to the errors of channels.

https://docs.slack.dev/reference/methods/chat.postMessage#errors
"""

from __future__ import annotations

import re

from channels.channel import (
    Ambiguous,
    MissingSetting,
    RateLimited,
    SendError,
    Unavailable,
    Undeliverable,
    Unreachable,
)

__all__ = ["send_error"]

_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_NOT_TAKEN = frozenset({"service_unavailable", "team_added_to_org", "request_timeout"})
_IN_DOUBT = frozenset({"internal_error", "fatal_error"})
"""Codes after which, as Slack documents, the call may have been done in part."""
_OF_THE_TOKEN = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
_SHUT = frozenset({"channel_not_found", "not_in_channel", "is_archived", "user_not_found", "cannot_dm_bot"})
_CODE = re.compile(r"[a-z0-9_.:-]{1,80}")
_WAIT_SECONDS = 30.0
"""The wait after "too many requests" without a time."""


def send_error(status: int, code: object, retry_after: str | None = None) -> SendError:
    """Return the SendError for an HTTP status and the ``error`` of Slack's own answer.

    `code` is None when the answer came from another server, for example a proxy. The error carries no text of a person
    and no secret.
    """
    if status == 429 or code in _LIMITED:
        return RateLimited("ratelimited", retry_after_seconds=_seconds(retry_after))
    if status >= 500 or 300 <= status < 400:
        return Unavailable(f"http_{status}")
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        if status < 300:
            return Ambiguous("unreadable_answer")
        return Undeliverable("http_413") if status == 413 else Unavailable(f"http_{status}")
    if code in _NOT_TAKEN:
        return Unavailable(code)
    if code in _OF_THE_TOKEN:
        return Unavailable("unauthorized", mend=_bad_token(code))
    if code in _SHUT:
        return Unreachable(code)
    return Ambiguous(code) if code in _IN_DOUBT else Undeliverable(code)


def _bad_token(code: str) -> MissingSetting:
    mend = f"Slack does not take it ({code}): install the app again and copy its Bot User OAuth Token"
    return MissingSetting("SLACK_BOT_TOKEN", mend)


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After header. https://docs.slack.dev/apis/web-api/rate-limits: a whole number."""
    text = retry_after or ""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else _WAIT_SECONDS
