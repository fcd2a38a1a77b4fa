"""Only what Slack signed, within five minutes, is Slack's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import Clock, SignatureVerifier

from channels import Forged, Stale, WebhookRequest
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


@pytest.mark.ledger("MISC-18")
@pytest.mark.parametrize(
    "change",
    [
        {"x-slack-signature": ""},
        {"x-slack-signature": "v0="},
        {"x-slack-signature": "v0=é"},
        {"x-slack-signature": "\udcff\ud800"},
        {"x-slack-signature": signature(secret="x" * 32)["x-slack-signature"]},
        {"x-slack-signature": signature()["x-slack-signature"].upper()},
        {"x-slack-signature": signature()["x-slack-signature"].replace("v0=", "v1=")},
        {"x-slack-request-timestamp": ""},
        {"x-slack-request-timestamp": "abc"},
        {"x-slack-request-timestamp": "nan"},
        {"x-slack-request-timestamp": "١٢٣"},
        {"x-slack-request-timestamp": "9" * 5000},
        {"x-slack-request-timestamp": str(int(NOW.timestamp()) + 1)},
    ],
)
def test_anything_else_is_forged(change: dict[str, str]) -> None:
    with pytest.raises(Forged):
        CHANNEL.verify(request(signature() | change), NOW)


def test_another_body_is_forged() -> None:
    with pytest.raises(Forged):
        CHANNEL.verify(request(signature(), BODY + b" "), NOW)
    with pytest.raises(Forged):
        CHANNEL.verify(request({}), NOW)


def test_without_a_secret_of_ours_nobody_gets_in() -> None:
    with pytest.raises(Forged):
        SlackChannel("xoxb-1").verify(request(signature()), NOW)


@given(
    st.text(st.characters(categories=None)),
    st.text(st.characters(categories=None)) | st.just("1767225600"),
    st.binary(),
)
def test_whatever_the_bytes_it_is_forged_or_stale_and_nothing_else(given_: str, timestamp: str, body: bytes) -> None:
    headers = {"x-slack-signature": given_, "x-slack-request-timestamp": timestamp}
    with pytest.raises((Forged, Stale)):
        CHANNEL.verify(request(headers, body), NOW)
