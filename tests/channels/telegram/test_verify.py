"""Only what carries the secret is Telegram's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Forged, WebhookRequest
from channels.telegram import TelegramChannel
from tests.channels.telegram.conftest import SECRET

CHANNEL = TelegramChannel("123:abc", SECRET)
HEADER = "x-telegram-bot-api-secret-token"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def request(secret: str | None, body: bytes = b"{}") -> WebhookRequest:
    headers = {} if secret is None else {HEADER: secret}
    return WebhookRequest("POST", "https://bot.example/webhooks/telegram", headers, body)


def test_the_secret_lets_in() -> None:
    CHANNEL.verify(request(SECRET), NOW)


@pytest.mark.ledger("MISC-18")
@pytest.mark.parametrize(
    "secret", [None, "", SECRET[:-1], SECRET + "x", SECRET.upper(), f" {SECRET}", "é", "\udcff", "\ud800", "\0"]
)
def test_anything_else_is_forged(secret: str | None) -> None:
    with pytest.raises(Forged) as caught:
        CHANNEL.verify(request(secret), NOW)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("given_secret", [None, ""])
def test_without_a_secret_of_ours_nobody_gets_in(given_secret: str | None) -> None:
    with pytest.raises(Forged):
        TelegramChannel("123:abc").verify(request(given_secret), NOW)


@given(st.text(st.characters(categories=None)), st.dictionaries(st.text(), st.text()), st.binary())
def test_whatever_the_bytes_it_is_forged_and_nothing_else(secret: str, headers: dict[str, str], body: bytes) -> None:
    odd = WebhookRequest("POST", "https://bot.example/", headers | {HEADER: secret}, body)
    with pytest.raises(Forged):
        CHANNEL.verify(odd, NOW)
