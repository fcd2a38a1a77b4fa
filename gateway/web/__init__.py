"""Web server: webhooks, downloads of kept files, health checks and the chat page."""

from gateway.web.asgi import ASGIApp, Bridge, asgi
from gateway.web.limits import ClientLimits
from gateway.web.server import Ready, web_app
from gateway.web.serving import Running, serve
from gateway.web.webhooks import Accept, RefusalMonitor, Webhooks, receive

__all__ = [
    "ASGIApp",
    "Accept",
    "Bridge",
    "ClientLimits",
    "Ready",
    "RefusalMonitor",
    "Running",
    "Webhooks",
    "asgi",
    "receive",
    "serve",
    "web_app",
]
