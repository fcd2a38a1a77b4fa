"""Socket Mode: the payloads of webhooks over a WebSocket, opened by the process.

https://docs.slack.dev/apis/events-api/using-socket-mode. Uses the process's own session, not slack_sdk's client: this
client hides an outage from the caller and logs the connection's secret URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from channels.channel import Malformed, Parsed, PollingRefused, Unavailable, Undeliverable, WebhookResponse
from channels.slack.api import WebApi
from channels.slack.parse import PayloadReader

_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_GREETING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload, with the id for the acknowledgement."""

    kind: str
    envelope_id: str
    payload: object

    def read(self, reader: PayloadReader) -> Parsed:
        """Return the events of the payload. Pure. A malformed payload counts as not understood."""
        try:
            if self.kind == "slash_commands":
                return reader.read_command(self.payload)
            return reader.read_json(json.dumps(self.payload).encode())
        except Malformed:
            return Parsed((), WebhookResponse(), not_understood=True)


_Received: TypeAlias = tuple[aiohttp.ClientWebSocketResponse, Envelope | PollingRefused | None]
"""A connection with an envelope or an error. None: the connection has ended or soon will."""


async def envelopes(http: aiohttp.ClientSession, api: WebApi, app_token: str) -> AsyncGenerator[Envelope, None]:
    """Yield envelopes until closed. The request for the next envelope acknowledges the previous envelope.

    Every few hours Slack asks for a new connection. The new connection is opened while the old connection still
    delivers, because Slack does not repeat a press. Raises PollingRefused when Slack refuses a connection, SendError
    when Slack is out of reach.
    """
    received: asyncio.Queue[_Received] = asyncio.Queue(maxsize=1)
    listening: set[asyncio.Task[None]] = set()

    async def connect() -> aiohttp.ClientWebSocketResponse:
        connection = await _greeted(http, await _url(api, app_token))
        task = asyncio.create_task(_listen(connection, received), name="slack socket mode")
        listening.add(task)
        task.add_done_callback(listening.discard)
        return connection

    try:
        newest = await connect()
        while True:
            connection, message = await received.get()
            if isinstance(message, Envelope):
                yield message
                with contextlib.suppress(aiohttp.ClientError, OSError):  # it comes again over the next connection
                    await connection.send_json({"envelope_id": message.envelope_id})
            elif message is not None:
                raise message
            elif connection is newest:
                newest = await connect()
    finally:
        tasks = list(listening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _url(api: WebApi, app_token: str) -> str:
    """Return the URL of a new connection, valid once. Raises PollingRefused or SendError."""
    try:
        return str((await api.call("apps.connections.open", {"app_token": app_token}))["url"])
    except (Undeliverable, Unavailable) as refused:
        if isinstance(refused, Unavailable) and refused.mend is None:
            raise
        raise PollingRefused(
            f"SLACK_APP_TOKEN: Slack opens no connection ({refused.code}): switch Socket Mode on, and copy an "
            "App-Level Token with connections:write from the app's page Basic Information"
        ) from None
    except LookupError:
        raise Unavailable("unreadable_answer") from None


async def _greeted(http: aiohttp.ClientSession, url: str) -> aiohttp.ClientWebSocketResponse:
    """Open a connection and wait for Slack's hello. Raises Unavailable."""
    proxy, auth = _proxy(url) if http.trust_env else (None, None)
    try:
        connection = await http.ws_connect(
            url,
            heartbeat=_HEARTBEAT_SECONDS,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            proxy=proxy,
            proxy_auth=auth,
        )
        if _read(await connection.receive(_GREETING_SECONDS)).get("type") == "hello":
            return connection
        await connection.close()
    except (aiohttp.ClientError, OSError):
        raise Unavailable("no_connection") from None
    raise Unavailable("connection_closed")


def _proxy(url: str) -> tuple[URL | None, aiohttp.BasicAuth | None]:
    """Return the environment's proxy for a WebSocket: the proxy of the same URL with ``http``.

    aiohttp itself would look for ``WSS_PROXY``, set by no system.
    """
    asked = URL(url)
    named = getproxies().get(asked.scheme.replace("ws", "http", 1))
    if named is None or proxy_bypass(asked.host or ""):
        return None, None
    proxy = URL(named)
    return proxy.with_user(None), aiohttp.BasicAuth.from_url(proxy)


async def _listen(connection: aiohttp.ClientWebSocketResponse, received: asyncio.Queue[_Received]) -> None:
    """Put the envelopes of a connection into the queue until the connection ends."""
    try:
        async for frame in connection:
            message = _read(frame)
            match message.get("type"):
                case "disconnect" if message.get("reason") == "link_disabled":
                    off = "slack: Socket Mode is switched off: switch it on in the app's page"
                    await received.put((connection, PollingRefused(off)))
                case "disconnect":
                    await received.put((connection, None))
                case str(kind) if isinstance(envelope_id := message.get("envelope_id"), str):
                    await received.put((connection, Envelope(kind, envelope_id, message.get("payload"))))
        await received.put((connection, None))
    finally:
        await connection.close()


def _read(frame: aiohttp.WSMessage) -> Mapping[str, Any]:
    if frame.type is not aiohttp.WSMsgType.TEXT:
        return {}
    try:
        message = json.loads(frame.data)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
