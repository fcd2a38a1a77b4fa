"""Only what Slack signed, within five minutes, is Slack's."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import Clock, SignatureVerifier

from channels import Forged, Malformed, Stale, WebhookRequest
from channels.slack import SlackChannel

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
CHANNEL = SlackChannel("xoxb-1", SECRET)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BODY = '{"text": "für alle 🧾"}'.encode()


class Then(Clock):
    def now(self) -> float:
        return NOW.timestamp()


def signature(body: bytes = BODY, at: datetime = NOW, secret: str = SECRET) -> dict[str, str]:
    """By the platform's own library."""
    timestamp = str(int(at.timestamp()))
    signed = SignatureVerifier(secret, Then()).generate_signature(timestamp=timestamp, body=body)
    assert signed is not None
    return {"x-slack-request-timestamp": timestamp, "x-slack-signature": signed}


def request(headers: dict[str, str], body: bytes = BODY) -> WebhookRequest:
    return WebhookRequest("POST", "https://bot.example/webhooks/slack", headers, body)


@pytest.mark.ledger("MISC-18")
@pytest.mark.parametrize("seconds", [0, 300, -300, 299, -299])
def test_what_slack_signed_just_now_gets_in(seconds: int) -> None:
    CHANNEL.verify(request(signature(at=NOW + timedelta(seconds=seconds))), NOW)


@pytest.mark.parametrize("seconds", [301, -301, 86400 * 365, -86400 * 365])
def test_old_and_future_are_stale(seconds: int) -> None:
    with pytest.raises(Stale):
        CHANNEL.verify(request(signature(at=NOW + timedelta(seconds=seconds))), NOW)


def test_without_a_secret_of_ours_nobody_gets_in() -> None:
    with pytest.raises(Forged):
        SlackChannel("xoxb-1").verify(request(signature()), NOW)


ODD = st.text(st.characters(categories=None)) | st.binary().map(lambda value: value.decode(errors="surrogateescape"))
"""A header's value as the web server hands it on: bytes that are no UTF-8 come as lone surrogates."""


@given(st.dictionaries(st.sampled_from([*signature(), "content-type", "host", "x-slack-retry-num"]) | ODD, ODD))
def test_odd_header_bytes_neither_admit_nor_reject_a_request(odd: dict[str, str]) -> None:
    with pytest.raises((Forged, Stale)):
        CHANNEL.verify(request(odd), NOW)
    CHANNEL.verify(request(odd | signature()), NOW)
    assert CHANNEL.parse(request({**odd, "content-type": "application/json"}, b"{}")).not_understood
    with contextlib.suppress(Malformed):
        assert CHANNEL.parse(request(odd, b"{}")).events == ()
