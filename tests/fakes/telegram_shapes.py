"""Users, chats, files and messages as the Bot API shows them. https://core.telegram.org/bots/api#available-types"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Chat", "File", "Message", "User"]


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
    """A file that went through: its bytes as they arrived."""

    kind: str
    content: bytes
    filename: str
    mime_type: str
    file_id: str = ""


@dataclass(eq=False)
class Message:
    """A message as a phone shows it now."""

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
    """Every button it ever had, label -> callback data: a phone may still show one that is gone."""
    once_sent: dict[str, str] = field(default_factory=dict)
    """The same by callback data, of which a label may have had several."""

    @property
    def buttons(self) -> list[str]:
        """The labels of the buttons under it."""
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
