"""The chat in the browser: our own page speaks to it, under the same contract as any platform."""

from channels.webchat.channel import WebChatChannel
from channels.webchat.verify import COOKIE, SECURE_COOKIE, Session, SessionCookies

__all__ = ["COOKIE", "SECURE_COOKIE", "Session", "SessionCookies", "WebChatChannel"]
