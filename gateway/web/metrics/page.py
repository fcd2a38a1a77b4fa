"""The page ``/metrics``, and who may read it."""

from __future__ import annotations

import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, TypeAlias

from aiohttp import HttpVersion11, hdrs, web
from pydantic import SecretStr

from channels import AskfirstError
from gateway.web.limits import ClientLimits, handler_args, limit_bodies
from gateway.web.serving import Running, serve

__all__ = ["PATH", "Scrape", "add_page", "on_port"]

Scrape: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns all metrics as text."""

PATH: Final = "/metrics"
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_FORWARDING: Final = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers by which proxies name their clients, beside those that begin with ``x-forwarded-``."""
_NOT_ALLOWED: Final = (
    "/metrics is read with ASKFIRST_ADMIN_TOKEN as a bearer. Without that setting it is read on this machine alone, "
    "by http://127.0.0.1 and through no proxy, or on a port of its own: ASKFIRST_METRICS_PORT.\n"
)


def add_page(app: web.Application, scrape: Scrape, token: SecretStr | None, *, own_port: bool = False) -> None:
    """Add ``/metrics``. With a token it is asked for; without one only a client on this machine may read.

    `own_port`: the application has a port of its own, and without a token all who reach it may read.
    """

    async def read(request: web.Request) -> web.Response:
        if token is not None:
            if not _has_token(request, token.get_secret_value()):
                return web.Response(
                    status=401,
                    text="the bearer is ASKFIRST_ADMIN_TOKEN\n",
                    headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="metrics"'},
                )
        elif not own_port and not _is_local(request):
            return web.Response(status=403, text=_NOT_ALLOWED)
        headers = {hdrs.CONTENT_TYPE: _TYPE, hdrs.CACHE_CONTROL: "no-store"}
        return web.Response(body=await scrape(), headers=headers)

    app.router.add_get(PATH, read)


@asynccontextmanager
async def on_port(scrape: Scrape, token: SecretStr | None, host: str, port: int) -> AsyncIterator[Running]:
    """Serve ``/metrics`` alone on a port of its own. Raises AskfirstError when it cannot be bound."""
    limits = ClientLimits()
    app = web.Application(handler_args=handler_args(limits))
    limit_bodies(app, limits)
    add_page(app, scrape, token, own_port=True)
    try:
        running = await serve(app, host, port)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        why = os.strerror(number) if number > 0 else "no such name"
        raise AskfirstError(
            f"cannot listen on {host}:{port} for the metrics ({why}): give another ASKFIRST_METRICS_PORT"
        ) from error
    try:
        yield running
    finally:
        await running.cleanup()


def _has_token(request: web.Request, token: str) -> bool:
    scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), token.encode()
    )


def _is_local(request: web.Request) -> bool:
    """Return True for a client on this machine that no proxy stands for.

    A proxy that adds no header at all still speaks HTTP/1.0, or names the host that it was asked for.
    """
    try:
        is_loopback = ip_address((request.remote or "").partition("%")[0]).is_loopback
    except ValueError:  # the private socket behind an ASGI server: its client is not known
        return False
    names = {name.lower() for name in request.headers}
    host = request.host.rpartition(":")[0] if request.host.rpartition(":")[2].isdecimal() else request.host
    return (
        is_loopback
        and request.version >= HttpVersion11
        and host.lower() in _LOCAL_NAMES
        and names.isdisjoint(_FORWARDING)
        and not any(name.startswith("x-forwarded-") for name in names)
    )
