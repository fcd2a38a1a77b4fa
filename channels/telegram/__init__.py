"""Telegram, through the Bot API."""

from channels.channel import PollingRefused
from channels.telegram.channel import TelegramChannel

__all__ = ["PollingRefused", "TelegramChannel"]
