"""Verification of requests. https://docs.slack.dev/authentication/verifying-requests-from-slack

It does not use slack_sdk's verifier, which raises three kinds of errors on malformed bytes and reads only UTF-8 bodies.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from channels.channel import Forged, Stale, WebhookRequest

__all__ = ["verify"]

_WINDOW_SECONDS = 300
"""The age after which a captured request is refused. Slack's clock and this machine's may differ by as much."""
_LONGEST_TIMESTAMP = 12


def verify(request: WebhookRequest, secrets: Sequence[str], now: datetime) -> None:
    """Check the signature in constant time, and its age. Raises Forged or Stale and no other error, for any bytes."""
    timestamp = request.headers.get("x-slack-request-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _LONGEST_TIMESTAMP):
        raise Forged("slack: the timestamp is missing or none")
    signed = b"v0:%b:%b" % (timestamp.encode(), request.body)
    expected = ["v0=" + hmac.digest(secret.encode(), signed, hashlib.sha256).hex() for secret in secrets]
    # Bytes of a header that are not UTF-8 arrive as lone surrogates. They become "?", which no signature contains.
    given = request.headers.get("x-slack-signature", "").encode("utf-8", "replace")
    if not any(hmac.compare_digest(given, signature.encode()) for signature in expected):
        raise Forged("slack: the signature is missing or wrong")
    if abs(now.timestamp() - int(timestamp)) > _WINDOW_SECONDS:
        raise Stale("slack: signed more than five minutes ago, or ahead")
