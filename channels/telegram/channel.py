"""The channel of Telegram."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import aiohttp

from channels.cancellable_threads import FILES, in_thread
from channels.channel import (
    Ambiguous,
    Capabilities,
    Forged,
    MissingSetting,
    Parsed,
    RateLimited,
    SendError,
    Unavailable,
    Undeliverable,
    Way,
    WebhookRequest,
)
from channels.events import Address, Attachment, Event, Message, Person
from channels.formatting import finished
from channels.keys import keys
from channels.message_stream import MessageStream
from channels.powers import StreamHandle
from channels.replies import Json, Media, OpenMedia, Part, Receipt, Reply
from channels.telegram.api import BotApi, Moved, bad_token, open_upload
from channels.telegram.parse import UpdateReader
from channels.telegram.payload import moment, position
from channels.telegram.render import CAPABILITIES, FILE_FIELD, render, rerouted, utf16_length

_log = logging.getLogger(__name__)

_API_URL = "https://api.telegram.org"
_TOKEN = re.compile(r"\d+:[A-Za-z0-9_-]+")
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
"""Telegram accepts 1 to 256 characters (https://core.telegram.org/bots/api#setwebhook). Under 16 can be guessed."""
_EDIT_SECONDS, _GROUP_EDIT_SECONDS = 2.0, 6.0
"""The time between two edits of a growing text. Telegram takes one message a second in a chat and 20 a minute in a
group (https://core.telegram.org/bots/faq, "my bot is hitting limits"). Half of this rate is left to other messages."""
_LONGEST_PAUSE_SECONDS = 30.0
_LONGEST_ANSWER = 200
"""UTF-16 units of the answer to a press. https://core.telegram.org/bots/api#answercallbackquery."""


class TelegramChannel:
    """The channel of one Telegram bot."""

    name: ClassVar[str] = "telegram"
    capabilities: Capabilities = CAPABILITIES

    def __init__(
        self,
        token: str,
        secret: str = "",
        api_url: str = _API_URL,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.account = token.partition(":")[0]
        """The bot's own id."""
        self.moved: dict[str, str] = {}
        """Groups that became supergroups, found while sending a part: old place -> new place."""
        self._token, self._secrets, self._api_url, self._sleep = token, keys(secret), api_url.rstrip("/"), sleep
        self.username = None
        self._started: BotApi | None = None
        self._drafts = itertools.count(1)
        self._takes_drafts = True

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        """Read TELEGRAM_BOT_TOKEN and, for webhooks, TELEGRAM_WEBHOOK_SECRET. Raises MissingSetting."""
        token = settings.get("TELEGRAM_BOT_TOKEN", "")
        if not _TOKEN.fullmatch(token):
            raise MissingSetting("TELEGRAM_BOT_TOKEN", "set it to what @BotFather gave you, such as 123456:AAH...")
        secret = settings.get("TELEGRAM_WEBHOOK_SECRET", "")
        if way == "webhook" and not (keys(secret) and all(_SECRET.fullmatch(key) for key in keys(secret))):
            raise MissingSetting(
                "TELEGRAM_WEBHOOK_SECRET",
                "set it to 16 to 256 characters of A-Z, a-z, 0-9, _ and - (new,old while you change it), "
                'for example from: python -c "import secrets; print(secrets.token_urlsafe(32))"',
            )
        api_url = settings.get("TELEGRAM_API_URL") or _API_URL
        if urlsplit(api_url).scheme not in ("http", "https"):
            raise MissingSetting("TELEGRAM_API_URL", "begin it with https:// (or leave it out)")
        return cls(token, secret, api_url)

    @property
    def username(self) -> str | None:
        """The bot's name without the @. Known from `start` on, or once set."""
        return self._username

    @username.setter
    def username(self, name: str | None) -> None:
        self._username = name
        self._reader = UpdateReader(self.name, self.account, name)

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Ask Telegram for the bot's name. Raises MissingSetting for an unknown token, else SendError."""
        api = BotApi(http, self._api_url, self._token)
        try:
            me = await api.call("getMe")
        except Unavailable as away:
            raise away.mend or away from None
        except Undeliverable as refused:
            raise bad_token(refused.code) from None
        self.username = me.get("username")
        self._started = api

    async def close(self) -> None:
        self._started = None

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Check the secret of a request. Raises Forged."""
        _verify(request, self._secrets)

    def parse(self, request: WebhookRequest) -> Parsed:
        """Return the events of an update. Pure. Raises Malformed for a body other than a JSON object in UTF-8."""
        return self._reader.read(request.body)

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Return the calls for a reply. Pure. Raises ValueError for a button token longer than 64 bytes."""
        return render(address, reply)

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        """Make one call. Raises SendError.

        A text with formatting refused by Telegram is sent once more as plain text, and a refused photo as a document. A
        part for a moved group goes to the group's new place (see `moved`).
        """
        chat = str(part.arguments["chat_id"])
        try:
            if chat in self.moved:
                raise Moved(self.moved[chat])
            sent = await self._deliver(part.call, dict(part.arguments), part.media)
        except Moved as moved:
            if chat not in self.moved:
                self.moved[chat] = moved.place
                was, now = (f"{self.name}:{self.account}:{place}" for place in (chat, moved.place))
                _log.info("the group %s is now the supergroup %s", was, now)
            if "message_id" in part.arguments:  # in the new place this id names another message
                raise Undeliverable("message_not_found") from None
            sent = await self._deliver(part.call, {**part.arguments, "chat_id": moved.place}, part.media)
        message_id = part.arguments.get("message_id", sent.get("message_id"))
        if message_id is None:
            raise Ambiguous("unreadable_answer")
        return Receipt(message_id=str(message_id), sent_at=moment(sent.get("date")))

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return True if `message` has a higher number than the bot's message, and no earlier time."""
        theirs, ours = position(message.message_id), position(receipt.message_id)
        if theirs is None or ours is None or theirs <= ours:
            return False
        return message.sent_at is None or receipt.sent_at is None or message.sent_at >= receipt.sent_at

    async def edit(self, address: Address, message_id: str, part: Part) -> None:
        """Replace a message of the bot by a part. Raises SendError. An unchanged text counts as a success."""
        call = "editMessageText" if part.call == "sendMessage" else part.call
        shown = {name: value for name, value in part.arguments.items() if name != "message_thread_id"}
        await self.send(address, Part(call=call, arguments={**shown, "message_id": int(message_id)}), key="")

    async def answer(self, handle: str, text: str, *, private: bool) -> None:
        """Answer a press: with an alert, shown to the presser alone, when `private`. Raises no error."""
        try:
            await self._api.call(
                "answerCallbackQuery",
                callback_query_id=handle,
                text=_shortened(text, _LONGEST_ANSWER),
                show_alert=private,
            )
        except SendError as error:
            _log.info("telegram: a press was not answered: %s", error.code)

    async def typing(self, address: Address) -> None:
        """Show the bot as writing for five seconds. Raises no error."""
        thread = None if address.thread is None else int(address.thread)
        try:
            await self._api.call("sendChatAction", chat_id=address.place, action="typing", message_thread_id=thread)
        except SendError as error:
            _log.debug("telegram: typing was not shown: %s", error.code)

    async def stream(self, address: Address, *, message_ids: Sequence[str] = ()) -> StreamHandle:
        """Return a stream of drafts in a private chat, and of edited messages elsewhere.

        Once the server has refused drafts as unknown, messages are edited in private chats too.
        """
        if message_ids or address.group or not self._takes_drafts:
            interval_seconds = _GROUP_EDIT_SECONDS if address.group else _EDIT_SECONDS
            return MessageStream(self, address, interval_seconds=interval_seconds, message_ids=message_ids)
        return DraftStream(self._draft, address, next(self._drafts))

    async def _draft(self, arguments: dict[str, Json]) -> None:
        try:
            await self._api.call("sendMessageDraft", **arguments)
        except Undeliverable as refused:
            self._takes_drafts = refused.code != "unknown_method"
            raise

    async def delete(self, address: Address, message_id: str) -> None:
        """Take away a message of the bot. Raises SendError."""
        await self._api.call("deleteMessage", chat_id=address.place, message_id=int(message_id))

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield a file's bytes, at most 20 MB. Raises Undeliverable (too large, gone, no file) or another SendError."""
        if attachment.kind in ("location", "contact"):
            raise Undeliverable("not_a_file")
        async for piece in self._api.file(attachment.ref):
            yield piece

    async def open(self, person: Person) -> Address:
        """Return the address of the private chat with a person. Raises SendError if they never wrote to the bot."""
        await self._api.call("getChat", chat_id=person.user_id)
        return Address(channel=self.name, account=self.account, place=person.user_id)

    def reroute(self, part: Part, address: Address, *, only_to: str = "", buttons: bool = False) -> Part | None:
        """Return the part for another chat or topic. Pure. None for an edit, and for a single reader in a group."""
        if only_to or "message_id" in part.arguments:
            return None
        return rerouted(part, address, buttons=buttons)

    async def poll(self) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield events by long polling until cancelled. Raises PollingRefused. Retries while Telegram is away."""
        offset, pause = 0, 0.0
        while True:
            try:
                updates = await self._api.updates(offset)
            except (RateLimited, Unavailable, Ambiguous) as error:
                pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause or 1.0)
                await self._sleep(error.retry_after_seconds if isinstance(error, RateLimited) else pause)
                continue
            pause = 0.0
            if events := tuple(event for update in updates for event in self._events(update)):
                yield events
            offset = max((offset, *(update["update_id"] + 1 for update in updates)))

    async def registered(self) -> str | None:
        """Return the URL called by Telegram, or None. Raises SendError."""
        return (await self._api.call("getWebhookInfo")).get("url") or None

    async def register(self, url: str) -> None:
        """Register the webhook URL with the first secret. Raises Undeliverable with Telegram's own text."""
        await self._api.set_webhook(url, self._secrets[0] if self._secrets else "")

    async def unregister(self) -> None:
        """Remove the webhook. Telegram then keeps updates for polling. Raises SendError."""
        await self._api.call("deleteWebhook")

    async def set_commands(self, commands: Mapping[str, Mapping[str, str]]) -> None:
        """Set the menu of commands: language -> command -> description. The language "" is for all other languages.

        A command with other letters than a-z is left out: Telegram would refuse the whole menu
        (https://core.telegram.org/bots/api#botcommand). Raises SendError.
        """
        refused = sorted({name for names in commands.values() for name in names if not _COMMAND.fullmatch(name)})
        if refused:
            _log.warning("Telegram's menu shows no command with other letters than a-z: %s", ", ".join(refused))
        for language, descriptions in commands.items():
            menu = [
                {"command": name, "description": words}
                for name, words in descriptions.items()
                if _COMMAND.fullmatch(name)
            ]
            await self._api.call("setMyCommands", commands=menu, language_code=language or None)

    @property
    def _api(self) -> BotApi:
        if self._started is None:
            raise Unavailable("not_started")
        return self._started

    def _events(self, update: Mapping[str, Any]) -> tuple[Event, ...]:
        parsed = self._reader.read(json.dumps(update).encode())
        if parsed.not_understood:
            _log.warning("telegram: update %s is not understood and was left out", update["update_id"])
        return parsed.events

    async def _deliver(self, call: str, arguments: dict[str, Json], media: Media | None) -> Mapping[str, Any]:
        try:
            return await self._post(call, arguments, media)
        except Undeliverable as refused:
            match refused.code:
                case "entities":
                    arguments = {k: v for k, v in arguments.items() if k not in ("entities", "caption_entities")}
                case "photo_refused" if call == "sendPhoto":
                    call = "sendDocument"
                case "not_modified":
                    return {}
                case _:
                    raise
        return await self._post(call, arguments, media)

    async def _post(self, call: str, arguments: dict[str, Json], media: Media | None) -> Mapping[str, Any]:
        if media is None:
            return await self._api.call(call, **arguments)
        if not isinstance(media, OpenMedia):
            raise TypeError("a part's media is opened before the part is sent")
        if call not in FILE_FIELD:
            if media.link is None:
                raise Undeliverable("file_too_large")
            named = {
                "type": "text_link",
                "offset": 0,
                "length": utf16_length(str(arguments["text"])),
                "url": media.link,
            }
            return await self._api.call(call, **arguments, entities=[named])
        try:
            upload = await in_thread(partial(open_upload, media), threads=FILES)
        except OSError:
            raise Undeliverable("file_gone") from None
        except RuntimeError:  # no thread can be started, and the call was not sent
            raise Unavailable("no_thread") from None
        return await self._api.call(call, **arguments, **{FILE_FIELD[call]: upload})


def _shortened(text: str, units: int) -> str:
    whole = text.encode("utf-16-le", "replace")
    if len(whole) <= 2 * units:
        return text
    return whole[: 2 * (units - 1)].decode("utf-16-le", "ignore") + "…"


class DraftStream:
    """A StreamHandle over ``sendMessageDraft``: https://core.telegram.org/bots/api#sendmessagedraft.

    A draft is shown for 30 seconds after the last change. The answer is a separate message and replaces the draft.
    """

    interval_seconds = 1.0
    message_ids: Sequence[str] = ()

    def __init__(self, call: Callable[[dict[str, Json]], Awaitable[None]], address: Address, draft_id: int) -> None:
        self._call, self._address, self._draft_id = call, address, draft_id

    async def update(self, text: str) -> None:
        """Show the text so far; only the end of a text too long for a message. Raises SendError."""
        parts = render(self._address, Reply(text=finished(text)))
        if parts:
            arguments = {name: value for name, value in parts[-1].arguments.items() if name != "link_preview_options"}
            await self._call({**arguments, "draft_id": self._draft_id})

    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Raise Undeliverable for any part, since no message shows the text."""
        if parts:
            raise Undeliverable("no_message")
        return ()


_HEADER = "x-telegram-bot-api-secret-token"
"""The header of the secret. https://core.telegram.org/bots/api#setwebhook, secret_token."""


def _verify(request: WebhookRequest, secrets: Sequence[str]) -> None:
    """Check the secret of a request in constant time. Raises Forged and no other error, for any bytes.

    Telegram signs neither the body nor the time, so a replayed request is recognised by its update id instead.
    """
    # Bytes of a header that are not UTF-8 arrive as lone surrogates. They become "?", which no secret contains.
    given = request.headers.get(_HEADER, "").encode("utf-8", "replace")
    if not any(hmac.compare_digest(given, secret.encode()) for secret in secrets):
        raise Forged("telegram: the secret token is missing or wrong")
