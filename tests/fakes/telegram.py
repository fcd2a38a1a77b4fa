"""Telegram as a real HTTP server: the Bot API for a bot, and the people in the chats.

    async with FakeTelegram() as telegram:           # telegram.url, telegram.token
        ana = telegram.person("Ana")
        await telegram.person_says(ana, ana, "delete INV-42")     # a private chat is named by its person
        prompt = await telegram.wait_for(lambda: telegram.last(ana, button="Confirm"))
        press = await telegram.press(prompt, "Confirm", by=ana)
        await telegram.wait_for(lambda: press.answered)

Updates go to the webhook if the bot has set one, else wait for getUpdates. telegram_limits has the refusals, with
sources. Time is real: only long polls, redeliveries and calls held by a test wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Literal, Self, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from tests.fakes.telegram_limits import (
    MAX_TEXT,
    Chat,
    File,
    Message,
    Refusal,
    User,
    bad,
    check_caption,
    check_entities,
    check_file,
    check_keyboard,
    check_text,
    utf16,
)
from tests.fakes.waiting import Hold, first, listen

__all__ = ["Chat", "FakeTelegram", "File", "Message", "Press", "Refusal", "User"]

T = TypeVar("T")

MAX_DOWNLOAD = 20_000_000  # https://core.telegram.org/bots/api#getfile
MAX_ANSWER = 200  # https://core.telegram.org/bots/api#answercallbackquery
SECRET_CHARACTERS = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")  # #setwebhook
PORTS = {443, 80, 88, 8443}  # #setwebhook, notes
MEDIA = {"sendPhoto": "photo", "sendDocument": "document", "sendAudio": "audio", "sendVideo": "video"}
JSON_FIELDS = {"entities", "caption_entities", "reply_markup", "allowed_updates", "commands", "link_preview_options"}
# https://core.telegram.org/bots/api#update: all kinds but chat_member and reactions when allowed_updates is not given
LEFT_OUT = {"chat_member", "message_reaction", "message_reaction_count"}


@dataclass
class Press:
    query_id: str
    answered: bool = False
    text: str = ""
    alert: bool = False


@dataclass
class Call:
    method: str
    arguments: dict[str, Any]
    files: dict[str, File]


@dataclass
class Draft:
    chat: Chat
    draft_id: int
    text: str
    entities: list[dict[str, Any]]


@dataclass
class Fault:
    """The fate of one call, in place of or around the answer."""

    refusal: Refusal | None = None
    html: int | None = None
    cut: bool = False
    taken: bool = False
    hold: Hold | None = None


class FakeTelegram:
    """One bot's Telegram. The lists for tests are plain, oldest first."""

    def __init__(
        self,
        token: str = "7000001:AAFakeTokenOfTests_0123456789abcdefg",
        username: str = "askfirst_bot",
        *,
        redeliver_seconds: float = 0.05,
    ) -> None:
        self.token = token
        self.bot = User(int(token.partition(":")[0]), "Askfirst", username=username, is_bot=True)
        self.url = ""
        self.calls: list[Call] = []
        self.sent: list[Message] = []
        """The bot's messages, in the present state."""
        self.deliveries: list[tuple[int, int | None]] = []
        """(update_id, the webhook's status; None if not reached), one for each attempt."""
        self.drafts: list[Draft] = []
        """The drafts of unfinished messages shown by the bot."""
        self.answer_is_lost: Callable[[], bool] = lambda: False
        """Called after each delivery. True: the webhook's answer is lost, and the update is delivered again."""
        self.commands: dict[str, list[dict[str, str]]] = {}
        self.webhook: dict[str, Any] = {}
        self.ahead_seconds = 0.0
        """The seconds of Telegram's clock ahead of this machine's."""
        self._redeliver_seconds = redeliver_seconds
        self._chats: dict[int, Chat] = {}
        self._threads: dict[int, set[int]] = defaultdict(set)
        self._unreachable: dict[int, Refusal] = {}
        self.refusing: dict[tuple[int, int | None], str] = {}
        """Chat and topic -> the description of the refusal of each new message; a topic of None is the whole chat."""
        self._messages: dict[tuple[int, int], Message] = {}
        self._presses: dict[str, Press] = {}
        self._files: dict[str, File] = {}
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._holds: list[Hold] = []
        self._ids = itertools.count(1)
        self._update_ids = itertools.count(900_000_001)
        self._pending: dict[int, tuple[int, dict[str, Any]]] = {}
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._poller: asyncio.Future[Refusal] | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/bot{token}/{method}", self._answer_call)
        app.router.add_get("/file/bot{token}/{path:.*}", self._answer_download)
        app.on_response_prepare.append(self._date)
        self._runner, self.url = await listen(app)
        self._http = aiohttp.ClientSession()
        return self

    async def _date(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = formatdate(time.time() + self.ahead_seconds, usegmt=True)

    async def __aexit__(self, *error: object) -> None:
        for hold in self._holds:
            hold.release()
        for worker in self._workers.values():
            worker.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        await self._http.close()
        await self._runner.cleanup()

    # ── for tests to look at ──

    async def wait_for(self, condition: Callable[[], T | None], timeout_seconds: float = 60.0) -> T:
        """Return the first truthy value of `condition`. Raises AssertionError after the timeout."""

        def seen() -> list[str]:
            return [f"{m.chat.title}: {m.text!r} {m.buttons}" for m in self.sent[-10:]]

        return await first(condition, self._changed, timeout_seconds, seen)

    def last(self, chat: Chat | User, *, button: str | None = None) -> Message | None:
        """Return the newest message of the bot in a chat; with `button`, the newest with this button."""
        here = [m for m in self.sent if m.chat.id == chat.id and (button is None or button in m.buttons)]
        return here[-1] if here else None

    def called(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    # ── faults ──

    def fail_next(
        self,
        method: str,
        status: int = 500,
        description: str = "Internal Server Error",
        *,
        retry_after: int | None = None,
        html: bool = False,
        cut: bool = False,
        taken: bool = False,
        times: int = 1,
    ) -> None:
        """The next `times` calls of `method` fail.

        `html`: with a page, as a proxy before the Bot API answers. `cut`: the connection ends without an answer once
        the whole request was read. `taken`: the call still has its effect.
        """
        refusal = Refusal(status, description, **({} if retry_after is None else {"retry_after": retry_after}))
        fault = Fault(refusal=refusal, html=status if html else None, cut=cut, taken=taken)
        self._faults[method].extend([fault] * times)

    def hold(self, method: str, when: Literal["before", "after"] = "after") -> Hold:
        """Hold the answer of the next call of `method`, before or after the call's effect."""
        hold = Hold()
        self._holds.append(hold)
        self._faults[method].append(Fault(hold=hold, taken=when == "after"))
        return hold

    # ── people ──

    def settings(self, secret: str) -> dict[str, str]:
        """The settings of the channel, with a webhook of this secret."""
        return {
            "TELEGRAM_BOT_TOKEN": self.token,
            "TELEGRAM_WEBHOOK_SECRET": secret,
            "TELEGRAM_API_URL": self.url,
        }

    def person(self, name: str, *, language: str = "en") -> User:
        return User(1000 + next(self._ids), name, language)

    def group(self, title: str) -> Chat:
        chat = Chat(-1_000_000_000_000 - next(self._ids), "supergroup", title)
        self._chats[chat.id] = chat
        return chat

    def topic_closes(self, chat: Chat, thread: int) -> None:
        self.refusing[chat.id, thread] = "Bad Request: TOPIC_CLOSED"

    def topic_is_deleted(self, chat: Chat, thread: int) -> None:
        self._threads[chat.id].discard(thread)

    def takes_rights(self, chat: Chat) -> None:
        """Only admins may write in the group."""
        self.refusing[chat.id, None] = "Bad Request: not enough rights to send text messages to the chat"

    def topic(self, chat: Chat) -> int:
        """Add a topic to a forum. Returns the message_thread_id."""
        thread = next(self._ids)
        self._threads[chat.id].add(thread)
        return thread

    async def person_says(
        self,
        chat: Chat | User,
        user: User,
        text: str,
        *,
        thread: int | None = None,
        reply_to: Message | None = None,
        file: File | None = None,
        wait: bool = True,
        **fields: Any,
    ) -> Message:
        """A person writes. `wait`: return after the webhook's acceptance. `fields` are added to the Message."""
        message = self._put(self._chat(chat), user, text=text, thread=thread, reply_to=reply_to, file=file)
        message.entities = _recognised(text)
        await self._tell("message", message.chat, message.to_json() | fields, wait=wait)
        return message

    async def person_edits(self, message: Message, text: str, *, wait: bool = True) -> None:
        message.text, message.entities = text, _recognised(text)
        edited = message.to_json() | {"edit_date": int(time.time())}
        await self._tell("edited_message", message.chat, edited, wait=wait)

    async def press(
        self, message: Message, label: str, by: User, *, data: str | None = None, wait: bool = True
    ) -> Press:
        """A person presses a button of a message, perhaps a removed one: a phone may still show it.

        `data`: the button's data, if the label has had several.
        """
        press = Press(str(next(self._ids)))
        self._presses[press.query_id] = press
        query = {
            "id": press.query_id,
            "from": by.to_json(),
            "message": message.to_json(),
            "chat_instance": "1",
            "data": data if data is not None else message.once_shown[label],
        }
        await self._tell("callback_query", message.chat, query, wait=wait)
        return press

    async def person_blocks(self, user: User, *, wait: bool = True) -> None:
        chat = self._chat(user)
        self._unreachable[chat.id] = Refusal(403, "Forbidden: bot was blocked by the user")
        await self._tell("my_chat_member", chat, self._membership(chat, user, "member", "kicked"), wait=wait)

    async def person_unblocks(self, user: User, *, wait: bool = True) -> None:
        chat = self._chat(user)
        self._unreachable.pop(chat.id, None)
        await self._tell("my_chat_member", chat, self._membership(chat, user, "kicked", "member"), wait=wait)

    def group_moves(self, chat: Chat) -> Chat:
        """A group becomes a supergroup: sending to the old group is refused with the new id."""
        new = self.group(chat.title)
        description = "Bad Request: group chat was upgraded to a supergroup chat"
        self._unreachable[chat.id] = Refusal(400, description, migrate_to_chat_id=new.id)
        return new

    def upload(self, kind: str, content: bytes, filename: str, mime_type: str) -> File:
        """A file of a person's, for `person_says(file=...)`."""
        file = File(kind, content, filename, mime_type, f"file{next(self._ids)}")
        self._files[file.file_id] = file
        return file

    async def deliver(self, kind: str, chat: Chat | User, payload: Mapping[str, Any], *, wait: bool = True) -> int:
        return await self._tell(kind, self._chat(chat), dict(payload), wait=wait)

    # ── updates ──

    async def _tell(self, kind: str, chat: Chat, payload: dict[str, Any], *, wait: bool) -> int:
        update_id = next(self._update_ids)
        allowed = self.webhook.get("allowed_updates")
        if kind in allowed if allowed else kind not in LEFT_OUT:
            self._pending[update_id] = (chat.id, {"update_id": update_id, kind: payload})
            self._pump()
        if wait and self.webhook.get("url"):
            await self.wait_for(lambda: update_id not in self._pending)
        return update_id

    def _pump(self) -> None:
        """Deliver in order, one update at a time for each chat; chats in parallel."""
        self._changed.set()
        if not self.webhook.get("url"):
            return
        for chat_id, _ in self._pending.values():
            worker = self._workers.get(chat_id)
            if worker is None or worker.done():
                self._workers[chat_id] = asyncio.create_task(self._deliver_all(chat_id))

    async def _deliver_all(self, chat_id: int) -> None:
        while url := self.webhook.get("url"):
            update = next((update for chat, update in self._pending.values() if chat == chat_id), None)
            if update is None:
                return
            status: int | None = None
            # https://core.telegram.org/bots/api#setwebhook: the header, and repeats until the answer is a 2xx
            headers = {"X-Telegram-Bot-Api-Secret-Token": self.webhook["secret"]} if self.webhook["secret"] else {}
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self._http.post(url, json=update, headers=headers) as response:
                    status = response.status
            self.deliveries.append((update["update_id"], status))
            if status is not None and 200 <= status < 300 and not self.answer_is_lost():
                self._pending.pop(update["update_id"], None)
                self._changed.set()
            else:
                self.webhook["last_error"] = f"Wrong response from the webhook: {status}"
                await asyncio.sleep(self._redeliver_seconds)

    # ── the Bot API ──

    async def _answer_call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        try:
            self._authorise(request)
            act = getattr(self, f"_do_{method}", None)
            if act is None:
                raise Refusal(404, "Not Found")
            call = await _read(method, request)
            self.calls.append(call)
            self._changed.set()
            fault = self._faults[method].popleft() if self._faults[method] else None
            if fault is None:
                return _ok(await act(call))
            return await self._faulty(fault, request, lambda: act(call))
        except Refusal as refusal:
            return web.json_response(refusal.body, status=refusal.status)

    async def _faulty(self, fault: Fault, request: web.Request, act: Callable[[], Any]) -> web.StreamResponse:
        if fault.hold:
            if not fault.taken:
                await fault.hold.stay()
                return _ok(await act())
            result = await act()
            await fault.hold.stay()
            return _ok(result)
        if fault.taken:
            await act()
        if fault.cut:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault.html:
            page = "<html><body><h1>Bad Gateway</h1></body></html>"
            return web.Response(status=fault.html, text=page, content_type="text/html")
        assert fault.refusal is not None
        raise fault.refusal

    def _authorise(self, request: web.Request) -> None:
        token = request.match_info["token"]
        if token != self.token:
            # The real server answers 404 to a text without the form of a token, else 401.
            raise Refusal(401, "Unauthorized") if ":" in token else Refusal(404, "Not Found")

    async def _do_getMe(self, call: Call) -> dict[str, Any]:  # noqa: N802
        flags = {"can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}
        return self.bot.to_json() | flags

    async def _do_getChat(self, call: Call) -> dict[str, Any]:  # noqa: N802
        return self._reachable(call).to_json() | {"accent_color_id": 0, "max_reaction_count": 11}

    async def _do_sendMessage(self, call: Call) -> dict[str, Any]:  # noqa: N802
        chat = self._reachable(call)
        text = str(call.arguments.get("text", ""))
        check_text(text)
        entities = call.arguments.get("entities", [])
        check_entities(text, entities)
        return self._send(call, chat, text=text, entities=entities)

    async def _do_sendMessageDraft(self, call: Call) -> bool:  # noqa: N802
        """https://core.telegram.org/bots/api#sendmessagedraft: private chats, a draft_id but 0, 0-4096 characters."""
        chat = self._reachable(call)
        if chat.type != "private":
            raise bad("message drafts can be sent only to private chats")
        draft_id, text = int(call.arguments.get("draft_id", 0)), str(call.arguments.get("text", ""))
        if draft_id == 0:
            raise bad("invalid draft identifier specified")
        if utf16(text) > MAX_TEXT:
            raise bad("message is too long")
        entities = call.arguments.get("entities", [])
        check_entities(text, entities)
        self.drafts.append(Draft(chat, draft_id, text, entities))
        self._changed.set()
        return True

    async def _do_deleteMessage(self, call: Call) -> bool:  # noqa: N802
        chat = self._reachable(call)
        message = self._messages.get((chat.id, int(call.arguments.get("message_id", 0))))
        if message is None:
            raise bad("message to delete not found")
        if message.sender is not self.bot:
            raise bad("message can't be deleted")
        del self._messages[chat.id, message.message_id]
        self.sent.remove(message)
        self._changed.set()
        return True

    async def _send_file(self, call: Call) -> dict[str, Any]:
        chat = self._reachable(call)
        kind = MEDIA[call.method]
        file = call.files.get(kind)
        if file is None:
            raise bad(f"there is no {kind} in the request")
        check_file(call.method, file.content)
        caption = str(call.arguments.get("caption", ""))
        check_caption(caption)
        entities = call.arguments.get("caption_entities", [])
        check_entities(caption, entities)
        kept = self.upload(kind, file.content, file.filename, file.mime_type)
        return self._send(call, chat, text=caption, entities=entities, file=kept)

    _do_sendPhoto = _do_sendDocument = _do_sendAudio = _do_sendVideo = _send_file  # noqa: N815

    async def _do_editMessageText(self, call: Call) -> dict[str, Any]:  # noqa: N802
        message = self._editable(call)
        if message.file:
            raise bad("there is no text in the message to edit")
        text = str(call.arguments.get("text", ""))
        check_text(text)
        entities = call.arguments.get("entities", [])
        check_entities(text, entities)
        return self._edit(message, text, entities, check_keyboard(call.arguments.get("reply_markup")))

    async def _do_editMessageReplyMarkup(self, call: Call) -> dict[str, Any]:  # noqa: N802
        message = self._editable(call)
        keyboard = check_keyboard(call.arguments.get("reply_markup"))
        return self._edit(message, message.text, message.entities, keyboard)

    async def _do_answerCallbackQuery(self, call: Call) -> bool:  # noqa: N802
        press = self._presses.get(str(call.arguments.get("callback_query_id")))
        if press is None or press.answered:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        press.text = str(call.arguments.get("text", ""))
        if utf16(press.text) > MAX_ANSWER:
            raise bad("MESSAGE_TOO_LONG")
        press.alert = str(call.arguments.get("show_alert", "false")).lower() == "true"
        press.answered = True
        self._changed.set()
        return True

    async def _do_sendChatAction(self, call: Call) -> bool:  # noqa: N802
        self._reachable(call)
        if call.arguments.get("action") not in {"typing", "upload_document", "upload_photo"}:
            raise bad("wrong parameter action in request")
        return True

    async def _do_getUpdates(self, call: Call) -> list[dict[str, Any]]:  # noqa: N802
        if self.webhook.get("url"):
            raise Refusal(
                409,
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
            )
        if self._poller and not self._poller.done():
            other = "terminated by other getUpdates request; make sure that only one bot instance is running"
            self._poller.set_result(Refusal(409, f"Conflict: {other}"))
        self._poller = ended = asyncio.get_running_loop().create_future()
        arguments = call.arguments
        if "allowed_updates" in arguments:
            self.webhook["allowed_updates"] = arguments["allowed_updates"]
        # https://core.telegram.org/bots/api#getupdates: an offset confirms every update before it
        offset = int(arguments.get("offset", 0))
        for update_id in [update_id for update_id in self._pending if update_id < offset]:
            del self._pending[update_id]
        self._changed.set()
        limit = min(int(arguments.get("limit", 100)), 100)
        deadline = time.monotonic() + int(arguments.get("timeout", 0))
        try:
            while not self._pending and time.monotonic() < deadline:
                await asyncio.wait([ended], timeout=0.01)
                if ended.done():
                    raise ended.result()
        finally:
            if not ended.done():
                ended.cancel()
        return [update for _, update in itertools.islice(self._pending.values(), limit)]

    async def _do_setWebhook(self, call: Call) -> bool:  # noqa: N802
        url = URL(str(call.arguments.get("url", "")))
        # A local Bot API server also takes HTTP, any local address and any port
        # (https://core.telegram.org/bots/api#using-a-local-bot-api-server); that is how a test is reached.
        if url.host != "127.0.0.1":
            if url.scheme != "https":
                raise bad("bad webhook: An HTTPS URL must be provided for webhook")
            if url.port not in PORTS:
                raise bad("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
        secret = str(call.arguments.get("secret_token", ""))
        if len(secret) > 256 or not set(secret) <= SECRET_CHARACTERS:
            raise bad("secret token contains unallowed characters")
        allowed = call.arguments.get("allowed_updates")
        self.webhook = {"url": str(url), "secret": secret, "allowed_updates": allowed}
        self._pump()
        return True

    async def _do_deleteWebhook(self, call: Call) -> bool:  # noqa: N802
        self.webhook = {}
        if str(call.arguments.get("drop_pending_updates", "false")).lower() == "true":
            self._pending.clear()
        return True

    async def _do_getWebhookInfo(self, call: Call) -> dict[str, Any]:  # noqa: N802
        info: dict[str, Any] = {
            "url": self.webhook.get("url", ""),
            "has_custom_certificate": False,
            "pending_update_count": len(self._pending),
        }
        if "last_error" in self.webhook:
            info |= {"last_error_date": int(time.time()), "last_error_message": self.webhook["last_error"]}
        return info

    async def _do_setMyCommands(self, call: Call) -> bool:  # noqa: N802
        commands = call.arguments.get("commands", [])
        for command in commands:  # https://core.telegram.org/bots/api#botcommand
            name = str(command["command"])
            if not re.fullmatch(r"[a-z0-9_]{1,32}", name):
                raise bad("BOT_COMMAND_INVALID")
            if not 1 <= len(command["description"]) <= 256:
                raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
        self.commands[str(call.arguments.get("language_code", ""))] = commands
        return True

    async def _do_getFile(self, call: Call) -> dict[str, Any]:  # noqa: N802
        file = self._files.get(str(call.arguments.get("file_id")))
        if file is None:
            raise bad("invalid file_id")
        if len(file.content) > MAX_DOWNLOAD:
            raise bad("file is too big")
        described = {"file_id": file.file_id, "file_unique_id": f"u{file.file_id}", "file_size": len(file.content)}
        return described | {"file_path": f"{file.kind}s/{file.file_id}"}

    async def _answer_download(self, request: web.Request) -> web.StreamResponse:
        try:
            self._authorise(request)
        except Refusal as refusal:
            return web.json_response(refusal.body, status=refusal.status)
        if self._faults["download"]:
            failing = self._faults["download"].popleft().refusal
            return web.Response(status=failing.status if failing else 500)
        file = self._files.get(request.match_info["path"].rpartition("/")[2])
        return web.Response(status=404) if file is None else web.Response(body=file.content)

    # ── chats and messages ──

    def _chat(self, chat: Chat | User) -> Chat:
        """Return the person's private chat, which exists once the person wrote to the bot."""
        if isinstance(chat, User):
            chat = self._chats.setdefault(chat.id, Chat(chat.id, "private", chat.first_name))
        return chat

    def _reachable(self, call: Call) -> Chat:
        chat_id = int(call.arguments.get("chat_id", 0))
        if refusal := self._unreachable.get(chat_id):
            raise refusal
        chat = self._chats.get(chat_id)
        if chat is None:
            raise bad("chat not found")
        thread = call.arguments.get("message_thread_id")
        if thread is not None and int(thread) not in self._threads[chat_id]:
            raise bad("message thread not found")
        return chat

    def _editable(self, call: Call) -> Message:
        chat = self._reachable(call)
        message = self._messages.get((chat.id, int(call.arguments.get("message_id", 0))))
        if message is None:
            raise bad("message to edit not found")
        if message.sender is not self.bot:
            raise bad("message can't be edited")
        return message

    def _put(self, chat: Chat, sender: User, **fields: Any) -> Message:
        message = Message(chat, next(self._ids), sender, **fields)
        self._messages[chat.id, message.message_id] = message
        return message

    def _send(self, call: Call, chat: Chat, **fields: Any) -> dict[str, Any]:
        keyboard = check_keyboard(call.arguments.get("reply_markup"))
        thread = call.arguments.get("message_thread_id")
        for place in (thread, None):
            if refused := self.refusing.get((chat.id, None if place is None else int(place))):
                raise Refusal(400, refused)
        message = self._put(chat, self.bot, thread=None if thread is None else int(thread), **fields)
        message.show(keyboard)
        self.sent.append(message)
        self._changed.set()
        return message.to_json()

    def _edit(
        self, message: Message, text: str, entities: list[dict[str, Any]], keyboard: list[list[dict[str, Any]]]
    ) -> dict[str, Any]:
        if (text, entities, keyboard) == (message.text, message.entities, message.keyboard):
            raise bad(
                "message is not modified: specified new message content and reply markup are exactly the same "
                "as a current content and reply markup of the message"
            )
        message.text, message.entities = text, entities
        message.show(keyboard)
        message.edits += 1
        self._changed.set()
        return message.to_json() | {"edit_date": int(time.time())}

    def _membership(self, chat: Chat, by: User, old: str, new: str) -> dict[str, Any]:
        """https://core.telegram.org/bots/api#chatmemberupdated"""
        member = {"user": self.bot.to_json()}
        kicked = {"until_date": 0}
        return {
            "chat": chat.to_json(),
            "from": by.to_json(),
            "date": int(time.time()),
            "old_chat_member": member | {"status": old} | (kicked if old == "kicked" else {}),
            "new_chat_member": member | {"status": new} | (kicked if new == "kicked" else {}),
        }


def _ok(result: Any) -> web.Response:
    return web.json_response({"ok": True, "result": result})


async def _read(method: str, request: web.Request) -> Call:
    """Arguments come in the query, as a form, as multipart or as JSON (https://core.telegram.org/bots/api#making-requests)."""
    arguments: dict[str, Any] = dict(request.query)
    files: dict[str, File] = {}
    if request.content_type == "application/json":
        arguments |= await request.json()
    else:
        for name, value in (await request.post()).items():
            if isinstance(value, web.FileField):
                content = value.file.read()
                files[name] = File(name, content, value.filename, value.content_type)
            else:
                arguments[name] = value
    for name in JSON_FIELDS & arguments.keys():
        if isinstance(arguments[name], str):
            try:
                arguments[name] = json.loads(arguments[name])
            except ValueError:
                raise bad(f"can't parse {name} JSON object") from None
    return Call(method, arguments, files)


def _recognised(text: str) -> list[dict[str, Any]]:
    """Return Telegram's own entities: commands and mentions (https://core.telegram.org/bots/api#messageentity)."""
    found = []
    at = 0
    for word in text.split(" "):
        kind = "bot_command" if word.startswith("/") else "mention" if word.startswith("@") else None
        name = word.rstrip(".,:;!?")
        if kind and len(name) > 1:
            found.append({"type": kind, "offset": utf16(text[:at]), "length": utf16(name)})
        at += len(word) + 1
    return found
