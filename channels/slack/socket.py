"""Socket Mode: what would come to a webhook, over a connection that we open.

https://docs.slack.dev/apis/events-api/using-socket-mode. Read over the process's own session, and not by slack_sdk's
client: that one hides an outage from whoever polls, and writes the connection's secret URL into the log.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from channels.channel import Malformed, Parsed, Unavailable, Undeliverable, WebhookResponse
from channels.slack.api import WebApi
from channels.slack.errors import PollingRefused
from channels.slack.parse import PayloadReader

__all__ = ["Envelope", "envelopes"]

_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Envelope:
    """One thing that Slack tells, with the id under which it is to be acknowledged."""

    kind: str
    envelope_id: str
    payload: object

    def read(self, reader: PayloadReader) -> Parsed:
        """Pure; what cannot be read at all is not understood."""
        try:
            if self.kind == "slash_commands":
                return reader.read_command(self.payload)
            return reader.read_json(json.dumps(self.payload).encode())
        except Malformed:
            return Parsed((), WebhookResponse(), not_understood=True)


async def envelopes(http: aiohttp.ClientSession, api: WebApi, app_token: str) -> AsyncGenerator[Envelope, None]:
    """What Slack tells, until closed. An envelope is acknowledged when the next one is asked for.

    Slack asks every few hours for a new connection. Raises PollingRefused when it gives none, SendError when
    it is out of reach.
    """
    while True:
        try:
            url = str((await api.call("apps.connections.open", {"app_token": app_token}))["url"])
        except Undeliverable as refused:
            raise PollingRefused(
                f"SLACK_APP_TOKEN: Slack opens no connection ({refused.code}): switch Socket Mode on, and copy an "
                "App-Level Token with connections:write from the app's page Basic Information"
            ) from None
        except LookupError:
            raise Unavailable("unreadable_answer") from None
        greeted = False
        try:
            async with http.ws_connect(
                url, heartbeat=_HEARTBEAT_SECONDS, timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS)
            ) as connection:
                async for frame in connection:
                    told = _told(frame)
                    match told.get("type"):
                        case "hello":
                            greeted = True
                        case "disconnect" if told.get("reason") == "link_disabled":
                            raise PollingRefused("slack: Socket Mode is switched off: switch it on in the app's page")
                        case "disconnect":
                            break
                        case str(kind) if isinstance(told.get("envelope_id"), str):
                            yield Envelope(kind, told["envelope_id"], told.get("payload"))
                            await connection.send_json({"envelope_id": told["envelope_id"]})
        except (aiohttp.ClientError, OSError):
            if not greeted:
                raise Unavailable("no_connection") from None
        if not greeted:
            raise Unavailable("connection_closed")


def _told(frame: aiohttp.WSMessage) -> Mapping[str, Any]:
    if frame.type is not aiohttp.WSMsgType.TEXT:
        return {}
    try:
        told = json.loads(frame.data)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
