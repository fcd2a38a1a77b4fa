"""The aiohttp application: webhooks, kept files and health. No other paths are served."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from channels import Channel, Json, Media, WebhookRequest, WebhookResponse
from gateway.artifacts import BadLink, Holder, OfSession
from gateway.observe.teller import SILENT, Teller
from gateway.store.errors import StoreUnavailable
from gateway.web.fast_path import WEBHOOKS, Take, answer
from gateway.web.limits import MAX_BODY_BYTES, ClientLimits, handler_args, limit_bodies
from gateway.web.webhooks import Accept, Answered, RefusalMonitor, Unstored, Webhooks, in_english, receive

READY_SECONDS = 1.0

SESSION: web.AppKey[Callable[[web.Request], Awaitable[Collection[str]]]] = web.AppKey("session")
"""Returns the holders of the chat page proven by a request. Set only when the chat page is served."""
Follow: TypeAlias = Callable[[str], Awaitable[tuple[Path, Media, Holder]]]
"""Token of a link -> the file and the holder. Raises BadLink and StoreUnavailable."""

_NOBODYS = WebhookResponse(status=404, headers={"Content-Type": "text/plain"}, body=b"404: Not Found")


class Ready(NamedTuple):
    """Readiness for requests, with the underlying checks."""

    ready: bool
    checks: Mapping[str, Json]


def web_app(
    *,
    channels: Mapping[str, Channel],
    accept: Accept,
    follow: Follow,
    ready: Callable[[], Awaitable[Ready]],
    now: Callable[[], datetime],
    unstored: Unstored = in_english,
    public_url: str | None = None,
    limits: ClientLimits | None = None,
    refusals: RefusalMonitor | None = None,
    events: Teller = SILENT,
    answered: Answered | None = None,
) -> web.Application:
    """Return the application, for `serve` or as a sub-application of another aiohttp application.

    `channels`: the channels with webhooks. `follow`: returns the file behind a link. `ready`: returns the readiness for
    `/readyz`.
    """
    limits = limits or ClientLimits()
    app = web.Application(client_max_size=MAX_BODY_BYTES, handler_args=handler_args(limits))
    limit_bodies(app, limits)
    webhooks = Webhooks(channels)
    handled = partial(receive, accept=accept, unstored=unstored, refusals=refusals, events=events, answered=answered)

    def webhook(name: str) -> Take:
        async def take(request: web.BaseRequest, body: bytes) -> WebhookResponse:
            called = as_called(request, body, public_url, f"/webhooks/{name}")
            channel = webhooks.addressed(name, called)
            if channel is None:
                return _NOBODYS
            return await handled(channel, called, now=now())

        return take

    def routed(take: Take) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            return answer(await take(request, await request.read()))

        return handle

    async def live(request: web.Request) -> web.Response:
        return web.Response(text="live")

    app.on_response_prepare.append(_say_little)
    app[WEBHOOKS] = {f"/webhooks/{name}": webhook(name) for name in webhooks.names}
    for path, take in app[WEBHOOKS].items():
        app.router.add_post(path, routed(take))
    app.router.add_get("/artifacts/{token}", _artifact_handler(app, follow))
    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", _readiness_handler(ready))
    return app


def _artifact_handler(app: web.Application, follow: Follow) -> Handler:
    """Return the handler of kept files. Only the holder of a link to the chat page may follow the link."""

    async def artifact(request: web.Request) -> web.StreamResponse:
        try:
            path, media, holder = await follow(request.match_info["token"])
            proven = await app[SESSION](request) if isinstance(holder, OfSession) and SESSION in app else ()
        except BadLink as error:
            raise web.HTTPNotFound from error
        except StoreUnavailable as error:
            raise web.HTTPServiceUnavailable(headers={hdrs.RETRY_AFTER: "5"}) from error
        if isinstance(holder, OfSession) and holder.session not in proven:
            raise web.HTTPNotFound
        # Files are served as downloads or images only: no file may run as a script under this origin.
        headers = {
            hdrs.CONTENT_TYPE: "application/octet-stream" if _RUNS.search(media.mime_type) else media.mime_type,
            hdrs.CONTENT_DISPOSITION: _attachment(media.filename),
            hdrs.CACHE_CONTROL: "private, no-store",
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        return web.FileResponse(path, headers=headers)

    return artifact


def _readiness_handler(ready: Callable[[], Awaitable[Ready]]) -> Handler:
    """Return the handler of ``/readyz``. A check above the time limit counts as not ready."""

    async def readiness(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                found = await ready()
        except TimeoutError:
            found = Ready(ready=False, checks={"answered_in_time": False})
        return web.json_response(dict(found.checks), status=200 if found.ready else 503)

    return readiness


_RUNS = re.compile("script|css", re.IGNORECASE)
"""Matches all MIME types run by a browser as a script (https://mimesniff.spec.whatwg.org/#javascript-mime-type) or
applied as a style sheet. The chat page may load scripts and styles of its own host, and kept files are on the same
host."""


def _attachment(filename: str) -> str:
    """Return a Content-Disposition with the name in RFC 6266 form, and in ASCII for platforms without support for this
    form."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


async def _say_little(request: web.Request, response: web.StreamResponse) -> None:
    """Remove the Server header, because the header names the software and the version."""
    response.headers.popall(hdrs.SERVER, None)


def as_called(request: web.BaseRequest, body: bytes, public_url: str | None, path: str) -> WebhookRequest:
    """Return the request as addressed by the sender: with the public URL in place of the internal URL.

    `path` is the path within the gateway. A proxy or an outer application may have changed the path of the request.
    """
    url = f"{request.scheme}://{request.host}{request.raw_path}"
    if public_url:
        _, mark, query = request.raw_path.partition("?")
        url = f"{public_url.rstrip('/')}{path}{mark}{query}"
    return WebhookRequest(method=request.method, url=url, headers=headers_of(request), body=body)


def headers_of(request: web.BaseRequest) -> dict[str, str]:
    """Return the headers with lower-case names. Repeated headers are joined with a comma (RFC 9110, 5.3)."""
    given = request.headers
    headers = {name.lower(): value for name, value in given.items()}
    if len(headers) < len(given):
        headers = {name: ", ".join(given.getall(name)) for name in headers}
    return headers
