"""Is a request Slack's, and of now? https://docs.slack.dev/authentication/verifying-requests-from-slack

Written out, because slack_sdk's verifier raises errors of three kinds on odd bytes and takes only bodies in UTF-8.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from channels.channel import Forged, Stale, WebhookRequest

__all__ = ["verify"]

_WINDOW_SECONDS = 300
"""A captured request is of no use after this long; Slack's clock and ours may differ by it, either way."""
_LONGEST_TIMESTAMP = 12


def verify(request: WebhookRequest, secrets: Sequence[str], now: datetime) -> None:
    """Raises Forged or Stale and nothing else, whatever the bytes; takes as long for a near miss as for a far one."""
    timestamp = request.headers.get("x-slack-request-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _LONGEST_TIMESTAMP):
        raise Forged("slack: the timestamp is missing or none")
    signed = b"v0:%b:%b" % (timestamp.encode(), request.body)
    expected = ["v0=" + hmac.digest(secret.encode(), signed, hashlib.sha256).hex() for secret in secrets]
    # A header's odd bytes arrive as lone surrogates; "?" stands for them and is in no signature.
    given = request.headers.get("x-slack-signature", "").encode("utf-8", "replace")
    if not any(hmac.compare_digest(given, signature.encode()) for signature in expected):
        raise Forged("slack: the signature is missing or wrong")
    if abs(now.timestamp() - int(timestamp)) > _WINDOW_SECONDS:
        raise Stale("slack: signed more than five minutes ago, or ahead")
