"""The web server: webhooks, kept files, health and the chat page."""

from gateway.web.limits import Limits, Running, serve
from gateway.web.server import Ready, web_app
from gateway.web.webhooks import Accept, Webhooks, receive

__all__ = ["Accept", "Limits", "Ready", "Running", "Webhooks", "receive", "serve", "web_app"]
