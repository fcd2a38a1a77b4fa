"""Slack as a real HTTP server: the Web API for an app, and the people in the workspace.

    async with FakeSlack() as slack:                      # slack.api_url, slack.bot_token, slack.signing_secret
        slack.webhook = "http://127.0.0.1:8080/webhooks/slack"
        ana = slack.person("ana")
        await slack.says(ana, slack.direct(ana), "delete INV-42")
        prompt = await slack.wait_for(lambda: slack.last(slack.direct(ana), button="Confirm"))
        press = await slack.press(prompt, "Confirm", by=ana)

Deliveries are signed and go to the webhook if set, else wait for a connection of Socket Mode. slack_limits has the
refusals of messages, with sources.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
from aiohttp import web

from tests.fakes.waiting import Hold, first, listen

T = TypeVar("T")

JSON_FIELDS = {"blocks", "files"}
ANSWERS = 5  # https://docs.slack.dev/interactivity/handling-user-interaction#message_responses
RETRIES = 3  # https://docs.slack.dev/apis/events-api#retries


@dataclass
class Sent:
    channel: str
    ts: str
    text: str
    thread: str | None
    blocks: list[dict[str, Any]]
    edits: int = 0
    metadata: dict[str, Any] | None = None
    only_to: str | None = None
    """The only person to see an ephemeral message."""

    @property
    def buttons(self) -> dict[str, dict[str, Any]]:
        """Label -> element."""
        rows = (block["elements"] for block in self.blocks if block["type"] == "actions")
        return {element["text"]["text"]: element for row in rows for element in row}

    @property
    def shown(self) -> str:
        """The text that a person sees, with marks."""
        return as_markdown(self.blocks)


@dataclass
class File:
    file_id: str
    name: str
    mime_type: str = "application/octet-stream"
    content: bytes | None = None
    channel: str | None = None
    thread: str | None = None


@dataclass
class Press:
    """A press, and the app's answers to the presser."""

    user: str
    answers: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Fault:
    """The fate of one call, in place of or around the answer."""

    status: int = 200
    error: str = "internal_error"
    retry_after: int | None = None
    html: bool = False
    cut: bool = False
    taken: bool = False
    hold: Hold | None = None


@dataclass
class Delivery:
    kind: str
    attempt: int
    status: int | None
    body: bytes = b""


class FakeSlack:
    """One app in one workspace. The lists for tests are plain, oldest first."""

    def __init__(self, *, retry_seconds: float = 0.02) -> None:
        self.bot_token, self.app_token = "xoxb-1-2-FakeTokenOfTests", "xapp-1-A1-2-FakeTokenOfTests"
        self.signing_secret = "8f742231b10e8888abcd99yyyzzz85a5"
        self.team, self.bot_user, self.app_id = "T0TEAM", "U0BOT", "A0APP"
        self.webhook: str | None = None
        self.url = ""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[Sent] = []
        self.files: list[File] = []
        """The files shown by the app, in order."""
        self.deliveries: list[Delivery] = []
        self.acknowledged: list[str] = []
        self.statuses: dict[tuple[str, str], str] = {}
        """(channel, thread) -> the status beside the thread, until the app's next message there."""
        self.scopes: set[str] | None = {"app_mentions:read", "chat:write", "commands", "im:history", "im:write"}
        """The scopes of the bot's token, as in each answer; None: the answers have none."""
        self.scopes |= {"files:read", "files:write"}
        self.scope_missing: set[str] = set()
        self.whispers: list[Sent] = []
        """The ephemeral messages of the app."""
        self.refusing: dict[tuple[str, str | None], str] = {}
        """Channel and thread -> the error of each new message; a thread of None is the whole channel."""
        self.no_direct: dict[str, str] = {}
        """Person -> the error of opening a private conversation: user_disabled, cannot_dm_bot."""
        self.unreachable: dict[str, str] = {}
        """Channel -> the error for any author there: not_in_channel, is_archived."""
        self._retry_seconds = retry_seconds
        self._names: dict[str, str] = {}
        self._homes: dict[str, str] = {}
        self._channels: set[str] = set()
        self._ids = itertools.count(1)
        self._presses: dict[str, Press] = {}
        self._kept: dict[str, File] = {}
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._holds: list[Hold] = []
        self._tickets: set[str] = set()
        self._pending: dict[str, dict[str, Any]] = {}
        self._connections: list[web.WebSocketResponse] = []
        self._told = itertools.count()
        self._changed = asyncio.Event()

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the channel, with a webhook."""
        return {
            "SLACK_BOT_TOKEN": self.bot_token,
            "SLACK_SIGNING_SECRET": self.signing_secret,
            "SLACK_API_URL": self.api_url,
        }

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/api/{method}", self._answer_call)
        app.router.add_post("/upload/v1/{file_id}", self._take_upload)
        app.router.add_get("/files-pri/{file_id}/{name}", self._give_file)
        app.router.add_post("/actions/{press_id}", self._take_answer)
        app.router.add_get("/link/", self._connect)
        self._runner, self.url = await listen(app)
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *error: object) -> None:
        for hold in self._holds:
            hold.release()
        for connection in self._connections:
            await connection.close()
        await self._http.close()
        await self._runner.cleanup()

    # ── for tests to look at ──

    async def wait_for(self, condition: Callable[[], T | None], timeout_seconds: float = 60.0) -> T:
        """Return the first truthy value of `condition`. Raises AssertionError after the timeout."""
        return await first(condition, self._changed, timeout_seconds, lambda: [(m.channel, m.text) for m in self.sent])

    def last(self, channel: str, *, button: str | None = None) -> Sent | None:
        """Return the newest message of the app in a channel; with `button`, the newest with this button."""
        here = [m for m in self.sent if m.channel == channel and (button is None or button in m.buttons)]
        return here[-1] if here else None

    def called(self, method: str) -> list[dict[str, Any]]:
        return [arguments for called, arguments in self.calls if called == method]

    # ── faults ──

    def fail_next(
        self,
        method: str,
        error: str = "internal_error",
        *,
        status: int = 200,
        retry_after: int | None = None,
        html: bool = False,
        cut: bool = False,
        taken: bool = False,
        times: int = 1,
    ) -> None:
        """The next `times` calls fail. `html`: with a page. `cut`: the connection ends once the request was read.

        `taken`: the call still has its effect. `upload`, `answer` and `download` are the ways beside the API.
        """
        fault = Fault(status, error, retry_after, html, cut, taken)
        self._faults[method].extend([fault] * times)

    def hold(self, method: str, when: Literal["before", "after"] = "after") -> Hold:
        """Hold the next call of `method`, before or after the call's effect."""
        hold = Hold()
        self._holds.append(hold)
        self._faults[method].append(Fault(hold=hold, taken=when == "after"))
        return hold

    # ── people ──

    def person(self, name: str, *, team: str | None = None) -> str:
        """A person of the workspace, or of another workspace in a shared channel (Slack Connect)."""
        user = f"U{next(self._ids):04}"
        self._names[user], self._homes[user] = name, team or self.team
        return user

    def channel(self) -> str:
        place = f"C{next(self._ids):04}"
        self._channels.add(place)
        return place

    def direct(self, user: str) -> str:
        """The private conversation with a person."""
        self._channels.add(f"D{user}")
        return f"D{user}"

    def upload(self, name: str, content: bytes, mime_type: str) -> dict[str, Any]:
        """A person's file, as an event has it."""
        file = File(f"F{next(self._ids):04}", name, mime_type, content)
        self._kept[file.file_id] = file
        url = f"{self.url}/files-pri/{file.file_id}/{name}"
        return {
            "id": file.file_id,
            "name": name,
            "mimetype": mime_type,
            "size": len(content),
            "mode": "hosted",
            "url_private": url,
            "url_private_download": url,
        }

    def next_ts(self) -> str:
        number = next(self._ids)
        return f"{int(time.time())}.{number:06}"

    async def says(
        self,
        user: str,
        channel: str,
        text: str,
        *,
        thread: str | None = None,
        files: list[dict[str, Any]] | None = None,
        attachments: list[dict[str, Any]] | None = None,
    ) -> str:
        """A person writes; the message's ts. A mention of the app in a channel comes twice, as on Slack."""
        ts = self.next_ts()
        kind = "im" if channel.startswith("D") else "channel"
        message: dict[str, Any] = {"user": user, "text": text, "ts": ts, "team": self.team, "channel": channel}
        words = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
        message |= {
            "client_msg_id": f"00000000-0000-4000-8000-{next(self._ids):012}",
            "blocks": [{"type": "rich_text", "block_id": "b", "elements": [words]}],
        }
        if thread is not None:
            root = next((m for m in self.sent if m.ts == thread), None)
            message |= {"thread_ts": thread, "parent_user_id": self.bot_user if root else user}
        if files is not None:
            message |= {"subtype": "file_share", "files": files}
        if attachments is not None:
            message["attachments"] = attachments
        if self._homes.get(user, self.team) != self.team:
            message |= {"user_team": self._homes[user], "source_team": self._homes[user]}
        await self.event({"type": "message", **message, "channel_type": kind, "event_ts": ts})
        if f"<@{self.bot_user}>" in text and kind == "channel":
            await self.event({"type": "app_mention", **message, "event_ts": ts})
        return ts

    async def event(self, event: dict[str, Any]) -> None:
        callback = {
            "token": "Z26uFbvR1xHJEdHE1OQiO6t8",
            "team_id": self.team,
            "api_app_id": self.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{next(self._ids):08}",
            "event_time": int(time.time()),
            "authorizations": [
                {
                    "enterprise_id": None,
                    "team_id": self.team,
                    "user_id": self.bot_user,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": False,
        }
        await self._deliver("events_api", callback, json.dumps(callback).encode(), "application/json")

    async def press(self, message: Sent, label: str, *, by: str) -> Press:
        element = message.buttons[label]
        press_id, press = f"{next(self._ids)}", Press(by)
        self._presses[press_id] = press
        shown: dict[str, Any] = {"type": "message", "ts": message.ts, "user": self.bot_user, "bot_id": "B0BOT"}
        container: dict[str, Any] = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": message.channel,
            "is_ephemeral": message.only_to is not None,
        }
        if message.thread is not None:
            shown["thread_ts"] = container["thread_ts"] = message.thread
        payload = {
            "type": "block_actions",
            "user": {"id": by, "username": self._names[by], "name": self._names[by], "team_id": self._homes[by]},
            "api_app_id": self.app_id,
            "container": container,
            "trigger_id": f"{press_id}.{self.team}",
            "team": {"id": self.team, "domain": "tests"},
            "enterprise": None,
            "is_enterprise_install": False,
            "channel": {"id": message.channel, "name": "directmessage"},
            "message": {**shown, "text": message.text, "blocks": message.blocks},
            "response_url": f"{self.url}/actions/{press_id}",
            "actions": [{**element, "block_id": "b", "action_ts": self.next_ts()}],
        }
        if message.only_to is not None:  # https://docs.slack.dev/reference/interaction-payloads/block_actions-payload
            assert by == message.only_to
            del payload["message"]
        await self._deliver("interactive", payload, urlencode({"payload": json.dumps(payload)}).encode())
        return press

    async def command(self, user: str, channel: str, command: str, text: str = "") -> Press:
        press_id, press = f"{next(self._ids)}", Press(user)
        self._presses[press_id] = press
        fields = {
            "token": "gIkuvaNzQIHg97ATvDxqgjtO",
            "team_id": self.team,
            "team_domain": "tests",
            "channel_id": channel,
            "channel_name": "directmessage",
            "user_id": user,
            "user_name": self._names[user],
            "command": command,
            "text": text,
            "api_app_id": self.app_id,
            "is_enterprise_install": "false",
            "response_url": f"{self.url}/actions/{press_id}",
            "trigger_id": f"{press_id}.{self.team}",
        }
        await self._deliver("slash_commands", fields, urlencode(fields).encode())
        return press

    def signed(self, body: bytes, timestamp: int | None = None) -> dict[str, str]:
        at = str(int(time.time()) if timestamp is None else timestamp)
        digest = hmac.new(self.signing_secret.encode(), b"v0:" + at.encode() + b":" + body, hashlib.sha256)
        return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={digest.hexdigest()}"}

    async def _deliver(
        self, kind: str, payload: dict[str, Any], body: bytes, mime_type: str = "application/x-www-form-urlencoded"
    ) -> None:
        """Deliver to the webhook, events again until accepted; without a webhook, to Socket Mode."""
        if self.webhook is None:
            envelope = {"envelope_id": f"env-{next(self._ids)}", "type": kind, "accepts_response_payload": False}
            self._pending[str(envelope["envelope_id"])] = {**envelope, "payload": payload}
            if connected := self.connected:
                # Of several connections any one may get it: https://docs.slack.dev/apis/events-api/using-socket-mode
                turn = next(self._told) % len(connected)
                await connected[turn].send_json(self._pending[str(envelope["envelope_id"])])
            return
        reason = ""
        for attempt in range(1 + RETRIES if kind == "events_api" else 1):
            headers = {**self.signed(body), "Content-Type": mime_type}
            if attempt:
                headers |= {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": reason}
                await asyncio.sleep(self._retry_seconds)
            try:
                async with self._http.post(self.webhook, data=body, headers=headers) as response:
                    delivery = Delivery(kind, attempt, response.status, await response.read())
                    stop = "X-Slack-No-Retry" in response.headers
                    reason = "http_error"
            except aiohttp.ClientError:
                delivery, stop, reason = Delivery(kind, attempt, None), False, "connection_failed"
            self.deliveries.append(delivery)
            self._changed.set()
            if stop or (delivery.status is not None and delivery.status < 300):
                return

    # ── Socket Mode ──

    @property
    def connected(self) -> list[web.WebSocketResponse]:
        """The open connections, oldest first."""
        return [connection for connection in self._connections if not connection.closed]

    async def disconnect(self, reason: str) -> None:
        """Slack asks for a new connection (`warning`, `refresh_requested`), or wants none (`link_disabled`)."""
        for connection in self.connected:
            await connection.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "x"}})

    async def drop(self) -> None:
        """The oldest connection ends, without a word."""
        await self.connected[0].close()

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=403)
        self._tickets.discard(ticket)
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        self._connections.append(connection)
        await connection.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": self.app_id}})
        for envelope in list(self._pending.values()):
            await connection.send_json(envelope)
        self._changed.set()
        async for frame in connection:
            envelope_id = json.loads(frame.data)["envelope_id"]
            if self._pending.pop(envelope_id, None) is not None:
                self.acknowledged.append(envelope_id)
            self._changed.set()
        self._changed.set()
        return connection

    # ── the Web API ──

    async def _answer_call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        arguments: dict[str, Any] = dict(request.query)
        body = await request.read()
        if request.content_type == "application/json":
            arguments |= json.loads(body or b"{}")
        else:
            arguments |= {name: str(value) for name, value in (await request.post()).items()}
        for name in JSON_FIELDS & arguments.keys():
            if isinstance(arguments[name], str):
                arguments[name] = json.loads(arguments[name])
        self.calls.append((method, arguments))
        return await self._around(method, request, lambda: self._outcome(method, request, arguments))

    def _outcome(self, method: str, request: web.Request, arguments: dict[str, Any]) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            if method not in METHODS:
                raise Refused("unknown_method")
            if token != (self.app_token if method == "apps.connections.open" else self.bot_token):
                raise Refused("invalid_auth" if token else "not_authed")
            if method in self.scope_missing:
                raise Refused("missing_scope")
            answer = getattr(self, METHODS[method])(arguments)
        except Refused as refused:
            return web.json_response({"ok": False, "error": refused.error})
        headers = {"x-oauth-scopes": ",".join(sorted(self.scopes))} if self.scopes is not None else None
        return web.json_response({"ok": True, **answer}, headers=headers)

    async def _around(self, method: str, request: web.Request, work: Callable[[], web.Response]) -> web.StreamResponse:
        fault = self._faults[method].popleft() if self._faults[method] else None
        self._changed.set()
        if fault is None:
            return work()
        answer = work() if fault.taken else None
        if fault.hold is not None:
            await fault.hold.stay()
            return answer or work()
        if fault.cut:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        if fault.html:
            return web.Response(status=fault.status, text="<html>Bad Gateway</html>", content_type="text/html")
        return web.json_response({"ok": False, "error": fault.error}, status=fault.status, headers=headers)

    def _auth_test(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "url": "https://tests.slack.com/",
            "team": "Tests",
            "user": "askfirst",
            "team_id": self.team,
            "user_id": self.bot_user,
            "bot_id": "B0BOT",
            "is_enterprise_install": False,
        }

    def _place(self, channel: object) -> str:
        if channel not in self._channels:
            raise Refused("channel_not_found")
        if channel in self.unreachable:
            raise Refused(self.unreachable[str(channel)])
        return str(channel)

    def _post(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel = self._place(arguments.get("channel"))
        check_message(arguments)
        thread = arguments.get("thread_ts")
        self._check_open(channel, thread)
        message = Sent(channel, self.next_ts(), arguments.get("text", ""), thread, arguments.get("blocks") or [])
        message.metadata = arguments.get("metadata")
        self.sent.append(message)
        self.statuses.pop((channel, str(thread)), None)
        return {"channel": channel, "ts": message.ts, "message": {"text": message.text, "ts": message.ts}}

    def _check_open(self, channel: str, thread: str | None) -> None:
        for place in (thread, None):
            if error := self.refusing.get((channel, place)):
                raise Refused(error)

    def _whisper(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/chat.postEphemeral: no id for chat.update, and no metadata."""
        channel, user = self._place(arguments.get("channel")), arguments.get("user")
        if user not in self._names:
            raise Refused("user_not_in_channel")
        check_message(arguments)
        message = Sent(channel, self.next_ts(), arguments.get("text", ""), None, arguments.get("blocks") or [])
        message.only_to = user
        self.whispers.append(message)
        return {"message_ts": message.ts}

    def _update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel = self._place(arguments.get("channel"))
        message = next((m for m in self.sent if (m.channel, m.ts) == (channel, arguments.get("ts"))), None)
        if message is None:
            raise Refused("message_not_found")
        check_message(arguments, longest=UPDATED_TEXT)
        message.text, message.blocks = arguments.get("text", ""), arguments.get("blocks") or []
        message.edits += 1
        return {"channel": channel, "ts": message.ts, "text": message.text}

    def _delete(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/chat.delete"""
        channel = self._place(arguments.get("channel"))
        message = next((m for m in self.sent if (m.channel, m.ts) == (channel, arguments.get("ts"))), None)
        if message is None:
            raise Refused("message_not_found")
        self.sent.remove(message)
        return {"channel": channel, "ts": message.ts}

    def _set_status(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel, thread = self._place(arguments.get("channel_id")), arguments.get("thread_ts")
        if not thread:
            raise Refused("invalid_thread_ts")
        self.statuses[channel, thread] = arguments["status"]
        return {}

    def _history(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"messages": self._read_back(arguments, None)[::-1][: int(arguments.get("limit", 100))]}

    def _replies(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"messages": self._read_back(arguments, arguments["ts"])[: int(arguments.get("limit", 1000))]}

    def _read_back(self, arguments: dict[str, Any], thread: str | None) -> list[dict[str, Any]]:
        channel, oldest = self._place(arguments.get("channel")), Decimal(arguments.get("oldest", "0"))
        here = [m for m in self.sent if (m.channel, m.thread) == (channel, thread) and Decimal(m.ts) > oldest]
        metadata = str(arguments.get("include_all_metadata", "")).lower() in ("true", "1")
        told = ({"type": "message", "user": self.bot_user, "ts": m.ts, "text": m.text} for m in here)
        return [
            t | ({"metadata": m.metadata} if metadata and m.metadata else {}) for t, m in zip(told, here, strict=True)
        ]

    def _open(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("users") not in self._names:
            raise Refused("user_not_found")
        if error := self.no_direct.get(arguments["users"]):
            raise Refused(error)
        return {"channel": {"id": self.direct(arguments["users"])}}

    def _upload_url(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not arguments.get("filename") or int(arguments.get("length") or 0) < 1:
            raise Refused("missing_argument")
        file = File(f"F{next(self._ids):04}", arguments["filename"])
        self._kept[file.file_id] = file
        url = f"{self.url}/upload/v1/{file.file_id}?length={arguments['length']}"
        return {"upload_url": url, "file_id": file.file_id}

    def _complete(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel = self._place(arguments.get("channel_id"))
        self._check_open(channel, arguments.get("thread_ts"))
        files = [self._kept.get(named["id"]) for named in arguments["files"]]
        for file in files:
            if file is None or file.content is None:
                raise Refused("file_not_found")
            file.channel, file.thread = channel, arguments.get("thread_ts")
            self.files.append(file)
        return {"files": [{"id": file.file_id, "title": file.name} for file in files if file]}

    def _connections_open(self, arguments: dict[str, Any]) -> dict[str, Any]:
        ticket = f"ticket-{next(self._ids)}"
        self._tickets.add(ticket)
        return {"url": f"{self.url.replace('http', 'ws', 1)}/link/?ticket={ticket}&app_id={self.app_id}"}

    # ── beside the Web API ──

    async def _take_upload(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()

        def keep() -> web.Response:
            if len(content) != int(request.query["length"]):
                return web.Response(status=400, text="length mismatch")
            self._kept[request.match_info["file_id"]].content = content
            return web.Response(text=f"OK - {len(content)}")

        return await self._around("upload", request, keep)

    async def _give_file(self, request: web.Request) -> web.StreamResponse:
        def give() -> web.Response:
            if request.headers.get("Authorization") != f"Bearer {self.bot_token}":
                return web.Response(text="<!DOCTYPE html><html>Sign in</html>", content_type="text/html")
            file = self._kept[request.match_info["file_id"]]
            return web.Response(body=file.content, content_type=file.mime_type)

        return await self._around("download", request, give)

    async def _take_answer(self, request: web.Request) -> web.StreamResponse:
        said = await request.json()

        def take() -> web.Response:
            press = self._presses.get(request.match_info["press_id"])
            if press is None or len(press.answers) >= ANSWERS:
                return web.json_response({"ok": False, "error": "used_url"}, status=404)
            try:
                check_message(said)
            except Refused as refused:
                return web.json_response({"ok": False, "error": refused.error}, status=400)
            press.answers.append(said)
            return web.Response(text="ok")

        return await self._around("answer", request, take)


METHODS = {
    "auth.test": "_auth_test",
    "chat.delete": "_delete",
    "chat.postEphemeral": "_whisper",
    "chat.postMessage": "_post",
    "chat.update": "_update",
    "conversations.history": "_history",
    "conversations.open": "_open",
    "conversations.replies": "_replies",
    "files.getUploadURLExternal": "_upload_url",
    "files.completeUploadExternal": "_complete",
    "apps.connections.open": "_connections_open",
    "assistant.threads.setStatus": "_set_status",
}


# ── Slack's refusals of a message, with the errors ──


TEXT, BLOCKS, ELEMENTS, LABEL, VALUE, ACTION_ID = 40_000, 50, 25, 75, 2_000, 255
UPDATED_TEXT = 4_000  # https://docs.slack.dev/reference/methods/chat.update#errors
ALL_BLOCKS = 13_200  # https://github.com/slackapi/bolt-js/issues/2509
MARKS = {"bold": "*", "italic": "_", "strike": "~", "code": "`"}
STYLES = {"text": set(MARKS), "link": {"bold", "italic", "strike"}}


class Refused(Exception):
    """The method answers with this error."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


def check_message(arguments: dict[str, Any], *, longest: int = TEXT) -> None:
    text, blocks = arguments.get("text") or "", arguments.get("blocks") or []
    if not text and not blocks:
        raise Refused("no_text")
    if len(text) > longest:
        raise Refused("msg_too_long")
    if not isinstance(blocks, list) or len(blocks) > BLOCKS:
        raise Refused("invalid_blocks")
    for block in blocks:
        _check_block(block)
    if len(json.dumps(blocks, ensure_ascii=False)) > ALL_BLOCKS:
        raise Refused("msg_blocks_too_long")
    metadata = arguments.get("metadata")
    if metadata is not None and set(metadata) != {"event_type", "event_payload"}:
        raise Refused("invalid_metadata_format")


def elements_of(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every piece of text, link or mention in the rich text of a message."""
    rich = [block for block in blocks if block["type"] == "rich_text"]
    return [piece for block in rich for held in block["elements"] for piece in held["elements"]]


def as_markdown(blocks: list[dict[str, Any]]) -> str:
    """Return the text that a person sees, in marks, for comparison in a test. Small text stands last."""
    held = (held for block in blocks if block["type"] == "rich_text" for held in block["elements"])
    small = (element["text"] for block in blocks if block["type"] == "context" for element in block["elements"])
    return "\n".join([*map(_written, held), *small])


def _written(held: dict[str, Any]) -> str:
    text = "".join(_piece(piece) for piece in held["elements"])
    match held["type"]:
        case "rich_text_quote":
            return "> " + text.replace("\n", "\n> ")
        case "rich_text_preformatted":
            return f"```{text}```"
        case _:
            return text


def _piece(piece: dict[str, Any]) -> str:
    match piece["type"]:
        case "user":
            return f"<@{piece['user_id']}>"
        case "date":
            return str(piece["fallback"])
        case "link":
            text = f"<{piece['url']}|{piece['text']}>"
        case _:
            text = piece["text"]
    marks = "".join(MARKS[style] for style in piece.get("style", {}))
    return f"{marks}{text}{marks[::-1]}"


def _check_block(block: dict[str, Any]) -> None:
    match block.get("type"):
        case "rich_text":
            _sure(block["elements"])
            for held in block["elements"]:
                _sure(held["elements"])
                for piece in held["elements"]:
                    _check_piece(held["type"], piece)
        case "actions":
            elements = block["elements"]
            _sure(1 <= len(elements) <= ELEMENTS)
            _sure(len({element["action_id"] for element in elements}) == len(elements))
            for element in elements:
                _check_button(element)
        case "context":  # https://docs.slack.dev/reference/block-kit/blocks/context-block
            _sure(1 <= len(block["elements"]) <= 10)
            for element in block["elements"]:
                _sure(element["type"] == "plain_text" and 1 <= len(element["text"]) <= 3000)
        case _:
            raise Refused("invalid_blocks")


def _check_piece(held: str, piece: dict[str, Any]) -> None:
    kind = piece["type"]
    _sure(held in ("rich_text_section", "rich_text_quote", "rich_text_preformatted"))
    if kind == "user":
        _sure(held != "rich_text_preformatted")
        return
    if kind == "date":  # https://docs.slack.dev/reference/block-kit/block-elements/date-element
        _sure(held != "rich_text_preformatted" and isinstance(piece["timestamp"], int) and piece["fallback"])
        _sure(re.search(r"\{(time|date\w*)\}", piece["format"]))
        return
    _sure(kind in STYLES and bool(piece["text"]))
    _sure(set(piece.get("style", {})) <= STYLES[kind] and (held != "rich_text_preformatted" or "style" not in piece))
    if kind == "link":
        url = urlsplit(piece["url"])
        _sure(held != "rich_text_preformatted" and not re.search(r"\s", piece["url"]))
        _sure(bool(url.hostname) if url.scheme in ("http", "https") else url.scheme == "mailto" and bool(url.path))


def _check_button(element: dict[str, Any]) -> None:
    _sure(element["type"] == "button" and element["text"]["type"] == "plain_text")
    _sure(element.get("style", "primary") in ("primary", "danger"))
    for text, limit in ((element["text"]["text"], LABEL), (element["value"], VALUE), (element["action_id"], ACTION_ID)):
        _sure(1 <= len(text) <= limit)


def _sure(holds: object) -> None:
    if not holds:
        raise Refused("invalid_blocks")
