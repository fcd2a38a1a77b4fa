"""The one aiohttp application: webhooks, kept files and health. Nothing else can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from urllib.parse import quote

from aiohttp import hdrs, web

from channels import Channel, WebhookRequest, WebhookResponse
from gateway.artifacts import ArtifactStore, BadLink
from gateway.web.limits import MAX_BODY_BYTES, Limits, limit_bodies
from gateway.web.webhooks import Accept, addressed, receive

__all__ = ["answer", "as_called", "headers_of", "web_app"]

READY_SECONDS = 1.0


def web_app(
    *,
    channels: Mapping[str, Channel],
    accept: Accept,
    artifacts: ArtifactStore,
    ready: Callable[[], Awaitable[Mapping[str, bool]]],
    now: Callable[[], datetime],
    public_url: str | None = None,
    limits: Limits | None = None,
) -> web.Application:
    """The application, to be served by `serve` or as a sub-application of somebody else's.

    `channels` are those that take webhooks; `ready` says by name which of what the gateway needs answers.
    """
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    limit_bodies(app, limits or Limits())

    async def webhook(request: web.Request) -> web.Response:
        called = await as_called(request, public_url)
        channel = addressed(channels, request.match_info["name"], called)
        if channel is None:
            raise web.HTTPNotFound
        return answer(await receive(channel, called, accept=accept, now=now()))

    async def artifact(request: web.Request) -> web.StreamResponse:
        try:
            path, media = artifacts.resolve(request.match_info["token"])
        except BadLink as error:
            raise web.HTTPNotFound from error
        # A file is only ever downloaded or shown as an image: nothing in it may run under our name.
        headers = {
            hdrs.CONTENT_TYPE: media.mime_type,
            hdrs.CONTENT_DISPOSITION: f"attachment; filename*=UTF-8''{quote(media.filename, safe='')}",
            hdrs.CACHE_CONTROL: "private, no-store",
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        return web.FileResponse(path, headers=headers)

    async def live(request: web.Request) -> web.Response:
        return web.Response(text="live")

    async def readiness(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                checks = dict(await ready())
        except TimeoutError:
            checks = {"answered_in_time": False}
        return web.json_response(checks, status=200 if all(checks.values()) else 503)

    app.on_response_prepare.append(_say_little)
    app.router.add_post("/webhooks/{name:.+}", webhook)
    app.router.add_get("/artifacts/{token}", artifact)
    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", readiness)
    return app


async def _say_little(request: web.Request, response: web.StreamResponse) -> None:
    """Nobody is told what serves them and in which version."""
    response.headers.popall(hdrs.SERVER, None)


async def as_called(request: web.Request, public_url: str | None) -> WebhookRequest:
    """The request as its sender made it: under our public URL, whatever stands in front of us."""
    base = public_url.rstrip("/") if public_url else f"{request.scheme}://{request.host}"
    return WebhookRequest(
        method=request.method,
        url=base + request.raw_path,
        headers=headers_of(request),
        body=await request.read(),
    )


def headers_of(request: web.Request) -> dict[str, str]:
    """Names in lower case; a header that comes twice is one value with a comma (RFC 9110, 5.3), so none is missed."""
    return {name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers}


def answer(response: WebhookResponse) -> web.Response:
    """A channel's answer as aiohttp sends it."""
    return web.Response(status=response.status, headers=dict(response.headers), body=response.body)
