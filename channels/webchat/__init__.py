"""The web chat: the gateway's own chat page as a platform, under the same contract as any other."""

from channels.webchat.channel import WebChatChannel
from channels.webchat.verify import COOKIE, SECURE_COOKIE, SESSION_SECONDS, SITE, Session, SessionCookies

__all__ = ["COOKIE", "SECURE_COOKIE", "SESSION_SECONDS", "SITE", "Session", "SessionCookies", "WebChatChannel"]
