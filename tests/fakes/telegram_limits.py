"""The refusals of the Bot API, each with a source. The descriptions are the real server's
(github.com/tdlib/telegram-bot-api, telegram-bot-api/Client.cpp; upper-case ones come from Telegram itself).
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_TEXT = 4096  # https://core.telegram.org/bots/api#sendmessage: text, 1-4096 characters after entities parsing
MAX_CAPTION = 1024  # https://core.telegram.org/bots/api#sendphoto: caption, 0-1024 characters
MAX_CALLBACK_DATA = 64  # https://core.telegram.org/bots/api#inlinekeyboardbutton: callback_data, 1-64 bytes
MAX_BUTTONS, MAX_ROW = 100, 8  # telegram.constants.InlineKeyboardMarkupLimit
MAX_ENTITIES = 100  # telegram.constants.MessageLimit.MESSAGE_ENTITIES
MAX_PHOTO, MAX_FILE = 10_000_000, 50_000_000  # https://core.telegram.org/bots/api#sending-files
MAX_PHOTO_SIDES = 10_000  # https://core.telegram.org/bots/api#sendphoto: width and height in total; ratio at most 20

ENTITY_TYPES = frozenset(  # https://core.telegram.org/bots/api#messageentity
    "bold italic underline strikethrough spoiler blockquote expandable_blockquote code pre text_link date_time".split()  # noqa: SIM905
)
ALONE = {"code", "pre"}  # https://core.telegram.org/bots/api#formatting-options: contain no entity, in no entity
QUOTES = {"blockquote", "expandable_blockquote"}  # the same page: cannot be nested


class Refusal(Exception):
    """The Bot API's error answer. https://core.telegram.org/bots/api#making-requests"""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.body: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
        if parameters:  # https://core.telegram.org/bots/api#responseparameters
            self.body["parameters"] = parameters
        self.status = status


def bad(description: str) -> Refusal:
    return Refusal(400, f"Bad Request: {description}")


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def check_text(text: str) -> None:
    if not text.strip():
        raise bad("message text is empty")
    if utf16(text) > MAX_TEXT:
        raise bad("message is too long")


def check_caption(caption: str) -> None:
    if utf16(caption) > MAX_CAPTION:
        raise bad("message caption is too long")


def check_entities(text: str, entities: Sequence[Mapping[str, Any]]) -> None:
    """Stricter than Telegram, which repairs some entities in silence: the sent entities must be right."""
    if len(entities) > MAX_ENTITIES:
        raise bad("can't parse entities: too many")
    spans = []
    for entity in entities:
        kind, start = entity.get("type"), entity.get("offset")
        length = entity.get("length")
        if kind not in ENTITY_TYPES or not isinstance(start, int) or not isinstance(length, int):
            raise bad(f"can't parse entities: {entity}")
        if start < 0 or length < 1 or start + length > utf16(text):
            raise bad(f"can't parse entities: {kind} is out of bounds")
        if kind == "text_link" and not re.match(r"(https?://|mailto:|tg://user\?id=)", str(entity.get("url"))):
            raise bad("can't parse entities: unsupported URL")
        if kind == "date_time":
            # https://core.telegram.org/bots/api#date-time-entity-formatting
            shown_as = str(entity.get("date_time_format", ""))
            if not isinstance(entity.get("unix_time"), int) or not re.fullmatch("r|w?[dD]?[tT]?", shown_as):
                raise bad(f"can't parse entities: {entity}")
        spans.append((start, start + length, str(kind)))
    for i, (start, end, kind) in enumerate(spans):
        for other_start, other_end, other in spans[i + 1 :]:
            if end <= other_start or other_end <= start:
                continue
            nested = (start <= other_start and other_end <= end) or (other_start <= start and end <= other_end)
            if not nested or kind in ALONE or other in ALONE or {kind, other} <= QUOTES:
                raise bad(f"can't parse entities: {kind} and {other} overlap")


def check_keyboard(markup: Mapping[str, Any] | None) -> list[list[dict[str, Any]]]:
    rows: list[list[dict[str, Any]]] = list((markup or {}).get("inline_keyboard", []))
    if sum(map(len, rows)) > MAX_BUTTONS or any(len(row) > MAX_ROW for row in rows):
        raise bad("reply markup is too long")
    for button in (button for row in rows for button in row):
        if not str(button.get("text", "")).strip():
            raise bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
        if not 1 <= len(str(button.get("callback_data", "")).encode()) <= MAX_CALLBACK_DATA:
            raise bad("BUTTON_DATA_INVALID")
    return rows


def check_file(method: str, content: bytes) -> None:
    if not content:
        raise bad("file must be non-empty")
    if len(content) > (MAX_PHOTO if method == "sendPhoto" else MAX_FILE):
        raise Refusal(413, "Request Entity Too Large")
    if method != "sendPhoto":
        return
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", content[16:24])
        if width + height > MAX_PHOTO_SIDES or max(width, height) > 20 * min(width, height):
            raise bad("PHOTO_INVALID_DIMENSIONS")
    elif not content.startswith((b"\xff\xd8\xff", b"RIFF")):
        raise bad("IMAGE_PROCESS_FAILED")


# ── Users, chats, files and messages as the Bot API shows them. https://core.telegram.org/bots/api#available-types ──


@dataclass(frozen=True)
class User:
    id: int
    first_name: str
    language_code: str = "en"
    username: str | None = None
    is_bot: bool = False

    def to_json(self) -> dict[str, Any]:
        shown = {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name, "username": self.username}
        if not self.is_bot:
            shown["language_code"] = self.language_code
        return {name: value for name, value in shown.items() if value is not None}


@dataclass(frozen=True)
class Chat:
    id: int
    type: Literal["private", "group", "supergroup"]
    title: str

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "type": self.type, "first_name" if self.type == "private" else "title": self.title}


@dataclass
class File:
    kind: str
    content: bytes
    filename: str
    mime_type: str
    file_id: str = ""


@dataclass(eq=False)
class Message:
    chat: Chat
    message_id: int
    sender: User
    text: str = ""
    entities: list[dict[str, Any]] = field(default_factory=list)
    keyboard: list[list[dict[str, Any]]] = field(default_factory=list)
    file: File | None = None
    thread: int | None = None
    reply_to: Message | None = None
    date: int = field(default_factory=lambda: int(time.time()))
    edits: int = 0
    once_shown: dict[str, str] = field(default_factory=dict)
    """Label -> callback data of every button so far: a phone may still show a removed button."""
    once_sent: dict[str, str] = field(default_factory=dict)
    """The same by callback data: a label may have had several."""

    @property
    def buttons(self) -> list[str]:
        return [button["text"] for row in self.keyboard for button in row]

    def show(self, keyboard: list[list[dict[str, Any]]]) -> None:
        self.keyboard = keyboard
        self.once_shown |= {button["text"]: button["callback_data"] for row in keyboard for button in row}
        self.once_sent |= {button["callback_data"]: button["text"] for row in keyboard for button in row}

    def to_json(self, *, with_reply: bool = True) -> dict[str, Any]:
        """https://core.telegram.org/bots/api#message"""
        shown: dict[str, Any] = {
            "message_id": self.message_id,
            "from": self.sender.to_json(),
            "chat": self.chat.to_json(),
            "date": self.date,
        }
        if self.thread is not None:
            shown |= {"message_thread_id": self.thread, "is_topic_message": True}
        if self.reply_to and with_reply:
            shown["reply_to_message"] = self.reply_to.to_json(with_reply=False)
        if self.keyboard:
            shown["reply_markup"] = {"inline_keyboard": self.keyboard}
        if self.file:
            described = {
                "file_id": self.file.file_id,
                "file_unique_id": f"u{self.file.file_id}",
                "file_size": len(self.file.content),
            }
            if self.file.kind == "photo":
                shown["photo"] = [described | {"width": 90, "height": 90}]
            else:
                described |= {"file_name": self.file.filename, "mime_type": self.file.mime_type}
                timed = {"audio": {"duration": 1}, "video": {"duration": 1, "width": 90, "height": 90}}
                shown[self.file.kind] = described | timed.get(self.file.kind, {})
            if self.text:
                shown |= {"caption": self.text, "caption_entities": self.entities}
        else:
            shown |= {"text": self.text, "entities": self.entities}
        return shown
