"""The channel of Slack."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import aiohttp

from channels.cancellable_threads import FILES, in_thread
from channels.channel import (
    Ambiguous,
    Capabilities,
    Forged,
    MissingSetting,
    Parsed,
    PlaceRefused,
    Stale,
    Unavailable,
    Undeliverable,
    WebhookRequest,
)
from channels.events import Address, Attachment, Event, Message, Person
from channels.keys import keys
from channels.message_stream import MessageStream
from channels.powers import StreamHandle
from channels.replies import Media, OpenMedia, Part, Receipt, Reply
from channels.slack.api import WebApi, download, is_slacks, upload
from channels.slack.parse import PayloadReader
from channels.slack.payload import moment, position
from channels.slack.render import CAPABILITIES, POST, linked, render, rerouted, shown
from channels.slack.socket import envelopes

_log = logging.getLogger(__name__)

_API_URL = "https://slack.com/api/"
_BOT_TOKEN = re.compile(r"(?:xoxe\.)?xoxb-[A-Za-z0-9-]+")
_APP_TOKEN = re.compile(r"xapp-[A-Za-z0-9-]+")
_SECRET = re.compile(r"[\x21-\x7e]{16,}")
_ANSWER_SECONDS = 5.0
_EDIT_SECONDS = 2.0
"""The time between two edits of a growing text. chat.update is of tier 3: 50 and more a minute in a workspace.
https://docs.slack.dev/apis/web-api/rate-limits"""
_METADATA = "askfirst_part"
_MOST_LOOKED_AT = 200
_CLOCKS_APART_SECONDS = 60.0
_STATUS = "is typing…"
"""The status text, shown by Slack after the app's name."""
_NOT_OURS = frozenset(
    {"missing_scope", "not_allowed_token_type", "no_permission", "unknown_method", "method_deprecated"}
)


class SlackChannel:
    """The channel of a Slack app in a workspace or an organisation."""

    name: ClassVar[str] = "slack"
    capabilities: Capabilities = CAPABILITIES

    def __init__(self, bot_token: str, signing_secret: str = "", app_token: str = "", api_url: str = _API_URL) -> None:
        self.account: str | None = None
        """The id of the workspace or of the organisation. Known from `start` on."""
        self._bot_token, self._signing_secrets, self._app_token = bot_token, keys(signing_secret), app_token
        self._api_url = api_url.rstrip("/") + "/"
        self._reader = PayloadReader(self.name)
        self._shows_status = True
        self._started: tuple[aiohttp.ClientSession, WebApi] | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Literal["webhook", "polling"]) -> Self:
        """Read SLACK_BOT_TOKEN, and SLACK_SIGNING_SECRET for webhooks or SLACK_APP_TOKEN for Socket Mode.

        Raises MissingSetting.
        """
        bot_token = settings.get("SLACK_BOT_TOKEN", "")
        if not _BOT_TOKEN.fullmatch(bot_token):
            raise MissingSetting(
                "SLACK_BOT_TOKEN", "set it to the Bot User OAuth Token of the app's page OAuth & Permissions: xoxb-..."
            )
        secret, app_token = settings.get("SLACK_SIGNING_SECRET", ""), settings.get("SLACK_APP_TOKEN", "")
        if way == "webhook" and not (keys(secret) and all(_SECRET.fullmatch(key) for key in keys(secret))):
            raise MissingSetting(
                "SLACK_SIGNING_SECRET", "set it to the Signing Secret of the app's page Basic Information"
            )
        if way == "polling" and not _APP_TOKEN.fullmatch(app_token):
            raise MissingSetting(
                "SLACK_APP_TOKEN",
                "set it to an App-Level Token with connections:write, of the app's page Basic Information: xapp-...",
            )
        api_url = settings.get("SLACK_API_URL") or _API_URL
        if urlsplit(api_url).scheme not in ("http", "https"):
            raise MissingSetting("SLACK_API_URL", "begin it with https:// (or leave it out)")
        return cls(bot_token, secret, app_token, api_url)

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Ask Slack for the workspace and the bot user of the token.

        Raises MissingSetting for a token refused by Slack, else SendError.
        """
        api = WebApi(http, self._api_url, self._bot_token)
        try:
            me = await api.call("auth.test", {})
        except Unavailable as away:
            raise away.mend or away from None
        self.account = me.get("enterprise_id") if me.get("is_enterprise_install") else me.get("team_id")
        self._reader = PayloadReader(self.name, self.account, me.get("user_id"))
        self._started = http, api

    async def close(self) -> None:
        self._started = None

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Check the signature of a request. Raises Forged or Stale."""
        _verify(request, self._signing_secrets, now)

    def parse(self, request: WebhookRequest) -> Parsed:
        """Return the events of a request. Pure. Raises Malformed for a body other than a JSON object or a form."""
        return self._reader.read(request)

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Return the calls for a reply. Pure.

        Raises ValueError for more than 25 buttons and for a token longer than 2,000 characters.
        """
        return render(address, reply)

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        """Make one call. Raises SendError.

        The bytes of a file are uploaded before the call that shows the file. Slack shows the file later and names no
        message, so the receipt of a file has no id.
        """
        _, api = self._api
        arguments = dict(part.arguments)
        if part.media is not None:
            arguments |= await self._with_media(part.call, part.media)
        if part.call == POST:
            arguments["metadata"] = {"event_type": _METADATA, "event_payload": {"key": key}}
        try:
            sent = await api.call(part.call, arguments)
        except Undeliverable as refused:
            if refused.code == "message_not_found" and "thread_ts" in arguments:
                raise PlaceRefused(refused.code, thread=True) from None  # the message that began the thread is deleted
            raise
        return _receipt(str(sent["ts"])) if "ts" in sent else Receipt(message_id=None)

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return True if Slack's stamp of `message` is later than the stamp of the bot's message."""
        theirs, ours = position(message.message_id), position(receipt.message_id)
        return theirs is not None and ours is not None and theirs > ours

    async def look_up(self, address: Address, part: Part, *, key: str, since: datetime) -> Receipt | None:
        """Search at most 200 messages since `since` for a message with this key in the metadata.

        Raises SendError, and always for a file, because a file carries no key. In a channel the app needs the scope
        channels:history, else missing_scope is raised. Private chats need no further scope.
        """
        if part.call != POST:
            raise Undeliverable("file_has_no_key")
        asked = {"channel": address.place, "include_all_metadata": True, "limit": _MOST_LOOKED_AT}
        asked["oldest"] = f"{since.timestamp() - _CLOCKS_APART_SECONDS:.6f}"
        method = "conversations.history"
        if address.thread is not None:
            method, asked["ts"] = "conversations.replies", address.thread
        found = await self._api[1].call(method, asked)
        for message in found.get("messages") or []:
            metadata = message.get("metadata") or {}
            if metadata.get("event_type") == _METADATA and metadata.get("event_payload") == {"key": key}:
                return _receipt(str(message["ts"]))
        return None

    async def edit(self, address: Address, message_id: str, part: Part) -> None:
        """Replace a message of the bot by a part. Raises SendError."""
        arguments = {name: value for name, value in part.arguments.items() if name != "thread_ts"}
        await self._api[1].call("chat.update", {**arguments, "ts": message_id})

    async def delete(self, address: Address, message_id: str) -> None:
        """Take away a message of the bot. Raises SendError."""
        await self._api[1].call("chat.delete", {"channel": address.place, "ts": message_id})

    async def stream(self, address: Address, *, message_ids: Sequence[str] = ()) -> StreamHandle:
        """Return a stream of edited messages."""
        return MessageStream(self, address, interval_seconds=_EDIT_SECONDS, message_ids=message_ids)

    async def typing(self, address: Address) -> None:
        """Show the bot as at work in a thread, until the bot's next message there, for two minutes at most.

        Outside of threads the call is a no-op (see `typing_under`). Raises SendError.
        """
        if address.thread is not None:
            await self.typing_under(address, address.thread)

    async def typing_under(self, address: Address, message_id: str, *, ends: bool = False) -> None:
        """Show the bot as at work, in the thread of the address, or in a chat without threads.

        Slack also shows the status in a private chat, given the ``ts`` of a message there:
        https://github.com/typeclaw/typeclaw/pull/582. There `ends` clears the status; in a thread the bot's message
        does. Raises SendError. Once Slack refuses the call for lack of rights, further calls are no-ops.
        """
        if not self._shows_status or (ends and address.thread is not None):
            return
        text = "" if ends else _STATUS
        status = {"channel_id": address.place, "thread_ts": address.thread or message_id, "status": text}
        try:
            await self._api[1].call("assistant.threads.setStatus", status)
        except Undeliverable as refused:
            self._shows_status = refused.code not in _NOT_OURS
            raise

    async def answer(self, handle: str, text: str, *, private: bool) -> None:
        """Show a text to the presser alone. Raises no error. A no-op unless `private`: the chat then shows the outcome.

        Slack allows this answer for half an hour after the press:
        https://docs.slack.dev/interactivity/handling-user-interaction#message_responses.
        """
        if not (private and text):
            return
        url, _, thread = handle.partition("#")
        if not is_slacks(url, self._api_url):
            _log.warning("slack: a press named a URL that is not Slack's, and was not answered")
            return
        said = {"response_type": "ephemeral", "replace_original": False, **shown(text)}
        if thread:
            said["thread_ts"] = thread  # without it the text appears in the channel, where the presser does not look
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        try:
            async with self._api[0].post(url, json=said, timeout=timeout, allow_redirects=False) as response:
                if response.status != 200:
                    _log.info("slack: a press was not answered: http_%d", response.status)
        except (aiohttp.ClientError, OSError) as error:
            _log.info("slack: a press was not answered: %s", type(error).__name__)

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield a file's bytes, at most 20 MB. Raises Undeliverable (too large, gone, no file) or another SendError."""
        if not is_slacks(attachment.ref, self._api_url):
            raise Undeliverable("not_a_file")
        async for piece in download(self._api[0], attachment.ref, self._bot_token):
            yield piece

    async def open(self, person: Person) -> Address:
        """Open the private chat with a person and return its address. Raises SendError."""
        opened = await self._api[1].call("conversations.open", {"users": person.user_id})
        found: Any = opened.get("channel")
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise Undeliverable("unreadable_answer")
        return Address(channel=self.name, account=person.account, place=found["id"])

    def reroute(self, part: Part, address: Address, *, only_to: str = "", buttons: bool = False) -> Part | None:
        """Return the part for another channel or thread, `only_to` one person as an ephemeral message. Pure.

        None for an edit, and for a file to one person.
        """
        return rerouted(part, address, only_to=only_to, buttons=buttons)

    async def poll(self) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield events over Socket Mode until cancelled. Raises PollingRefused when Slack refuses the app's token.

        The request for the next event acknowledges the previous event, stored by then. If the storing takes longer than
        Slack's three seconds, Slack sends the event again, and the twin is recognised by id.
        """
        async with aclosing(envelopes(*self._api, self._app_token)) as received:
            async for envelope in received:
                parsed = envelope.read(self._reader)
                if parsed.not_understood:
                    _log.warning("slack: an envelope of %s is not understood and was left out", envelope.kind)
                if parsed.events:
                    yield parsed.events

    @property
    def _api(self) -> tuple[aiohttp.ClientSession, WebApi]:
        if self._started is None:
            raise Unavailable("not_started")
        return self._started

    async def _with_media(self, call: str, media: Media) -> Mapping[str, Any]:
        """Upload the file of a part and return the arguments to show it. A file that is too large becomes a link."""
        if not isinstance(media, OpenMedia):
            raise TypeError("a part's media is opened before the part is sent")
        if call == POST:
            if media.link is None:
                raise Undeliverable("file_too_large")
            return linked(media.filename, media.link)
        http, api = self._api
        try:
            file = await in_thread(lambda: media.path.open("rb"), threads=FILES)
        except OSError:
            raise Undeliverable("file_gone") from None
        except RuntimeError:  # no thread can be started, and the call was not sent
            raise Unavailable("no_thread") from None
        with file:
            try:
                place = await api.call("files.getUploadURLExternal", {"filename": media.filename, "length": media.size})
            except Ambiguous as doubt:
                raise Unavailable(doubt.code) from None  # an upload that is not completed stays invisible
            if not ("upload_url" in place and "file_id" in place):
                raise Unavailable("unreadable_answer")
            await upload(http, str(place["upload_url"]), file)
        return {"files": [{"id": place["file_id"], "title": media.filename}]}


def _receipt(ts: str) -> Receipt:
    return Receipt(message_id=ts, sent_at=moment(ts))


_WINDOW_SECONDS = 300
"""The age after which a captured request is refused. Slack's clock and this machine's may differ by as much."""
_LONGEST_TIMESTAMP = 12


def _verify(request: WebhookRequest, secrets: Sequence[str], now: datetime) -> None:
    """Check the signature in constant time, and the age. Raises Forged or Stale and no other error, for any bytes."""
    timestamp = request.headers.get("x-slack-request-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _LONGEST_TIMESTAMP):
        raise Forged("slack: the timestamp is missing or none")
    signed = b"v0:%b:%b" % (timestamp.encode(), request.body)
    expected = ["v0=" + hmac.digest(secret.encode(), signed, hashlib.sha256).hex() for secret in secrets]
    # Bytes of a header that are not UTF-8 arrive as lone surrogates. They become "?", which no signature contains.
    given = request.headers.get("x-slack-signature", "").encode("utf-8", "replace")
    if not any(hmac.compare_digest(given, signature.encode()) for signature in expected):
        raise Forged("slack: the signature is missing or wrong")
    if abs(now.timestamp() - int(timestamp)) > _WINDOW_SECONDS:
        raise Stale("slack: signed more than five minutes ago, or ahead")
