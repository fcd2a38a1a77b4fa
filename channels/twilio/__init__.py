"""SMS and WhatsApp, through Twilio."""

from channels.twilio.channel import SmsChannel, WhatsAppChannel

__all__ = ["SmsChannel", "WhatsAppChannel"]
