"""Verification of requests: Telegram sends the secret that setWebhook was given."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from channels.channel import Forged, WebhookRequest

__all__ = ["verify"]

_HEADER = "x-telegram-bot-api-secret-token"
"""The header of the secret. https://core.telegram.org/bots/api#setwebhook, secret_token."""


def verify(request: WebhookRequest, secrets: Sequence[str]) -> None:
    """Check the secret of a request in constant time. Raises Forged and no other error, for any bytes.

    Telegram signs neither the body nor the time, so a replayed request is recognised by its update id instead.
    """
    # Bytes of a header that are not UTF-8 arrive as lone surrogates. They become "?", which no secret contains.
    given = request.headers.get(_HEADER, "").encode("utf-8", "replace")
    if not any(hmac.compare_digest(given, secret.encode()) for secret in secrets):
        raise Forged("telegram: the secret token is missing or wrong")
