"""Telegram, through its Bot API."""

from channels.telegram.channel import TelegramChannel
from channels.telegram.errors import PollingRefused

__all__ = ["PollingRefused", "TelegramChannel"]
