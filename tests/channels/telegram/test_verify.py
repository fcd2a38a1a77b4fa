"""Only what carries the secret is Telegram's: the contract shows it. And when there is none?"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from channels import Forged, WebhookRequest
from channels.telegram import TelegramChannel


@pytest.mark.parametrize("headers", [{}, {"x-telegram-bot-api-secret-token": ""}])
def test_without_a_secret_of_ours_nobody_gets_in(headers: dict[str, str]) -> None:
    request = WebhookRequest("POST", "https://bot.example/webhooks/telegram", headers, b"{}")
    with pytest.raises(Forged):
        TelegramChannel("123:abc").verify(request, datetime(2026, 1, 1, tzinfo=UTC))
