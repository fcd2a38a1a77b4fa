"""Telegram for the contract: the documented updates, the secret, and a Bot API.

Each fixture names the page of the Bot API's documentation with its shape.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import telegram
from telegram.constants import MessageEntityType

from channels import Address, Attachment, Parsed, Receipt, WebhookRequest, WebhookResponse
from channels import Message as MessageEvent
from channels.events import event_from_json
from channels.telegram import TelegramChannel
from channels.telegram.parse import UpdateReader
from gateway.testing import (
    RETRY_AFTER_SECONDS,
    Arrived,
    ArrivedFile,
    ChannelCase,
    Delivery,
    Fault,
    MessageField,
    Webhook,
)
from tests.fakes.telegram import FakeTelegram, Message, Press, User

SECRET = "secret_of_the_webhook-0123456789"
HEADER = "x-telegram-bot-api-secret-token"
FIXTURES = sorted(Path(__file__).with_name("fixtures").glob("*.json"))
PRESS = json.loads(Path(__file__).with_name("fixtures").joinpath("press.json").read_text())["update"]
ANA = {"id": 5001, "is_bot": False, "first_name": "Ana", "language_code": "es"}


def posted(update: dict[str, Any]) -> WebhookRequest:
    headers = {"content-type": "application/json"}
    return WebhookRequest("POST", "https://bot.example/webhooks/telegram", headers, json.dumps(update).encode())


def delivery(path: Path) -> Delivery:
    fixture = json.loads(path.read_text())
    assert fixture["source"], "each names what its shape is taken from"
    expected = fixture["expected"]
    events = tuple(event_from_json(event) for event in expected["events"])
    parsed = Parsed(events, WebhookResponse(), not_understood=expected["not_understood"])
    return Delivery(name=path.stem, request=posted(fixture["update"]), parsed=parsed)


def prove(request: WebhookRequest, at: datetime, attempt: int) -> WebhookRequest:
    return replace(request, headers={**request.headers, HEADER: SECRET})


def written(number: int, text: str, **fields: Any) -> WebhookRequest:
    chat = {"id": 5001, "first_name": "Ana", "type": "private"}
    message = {"message_id": number, "from": ANA, "chat": chat, "date": 1767225600, "text": text}
    return posted({"update_id": 1_000_000 + number, "message": message | fields})


def answered(receipt: Receipt, later: bool) -> MessageEvent:
    """A yes with the number next to ours, in the same second."""
    assert receipt.message_id is not None
    assert receipt.sent_at is not None
    number = int(receipt.message_id) + (1 if later else -1)
    [event] = (
        UpdateReader("telegram", "1").read(written(number, "yes", date=int(receipt.sent_at.timestamp())).body).events
    )
    assert isinstance(event, MessageEvent)
    return event


def webhook() -> Webhook:
    ids = itertools.count(1)

    def says(text: str) -> WebhookRequest:
        return written(next(ids), text)

    def holding(fields: Mapping[str, Any]) -> WebhookRequest:
        return written(next(ids), "yes", **fields)

    def presses(token: str) -> WebhookRequest:
        return posted({**PRESS, "callback_query": {**PRESS["callback_query"], "data": token}})

    return Webhook(
        deliveries=[delivery(path) for path in FIXTURES],
        says=says,
        presses=presses,
        fields=FIELDS,
        holding=holding,
        prove=prove,
        proof=[HEADER],
        covers_body=False,
    )


class Platform:
    def __init__(self, fake: FakeTelegram, ana: User, patch: pytest.MonkeyPatch) -> None:
        self._fake, self._ana, self._patch = fake, ana, patch

    @property
    def calls(self) -> int:
        return len(self._fake.calls)

    def arrived(self) -> Sequence[Arrived]:
        return [arrived(message) for message in self._fake.sent if message.chat.id == self._ana.id]

    async def fail(self, fault: Fault) -> None:
        fake, method = self._fake, "sendMessage"
        match fault:
            case "limited":
                fake.fail_next(method, 429, "Too Many Requests", retry_after=RETRY_AFTER_SECONDS)
            case "refused":
                fake.fail_next(method, 403, "Forbidden: bot was blocked by the user")
            case "unauthorized":
                fake.fail_next(method, 401, "Unauthorized")
            case "page":
                fake.fail_next(method, 403, html=True)
            case "broken":
                fake.fail_next(method, 502, html=True)
            case "cut":
                fake.fail_next(method, cut=True, taken=True)
            case "silent":
                self._patch.setattr("channels.telegram.api._ANSWER_SECONDS", 0.1)
                fake.hold(method)
            case "away":
                await fake._runner.cleanup()


def arrived(message: Message) -> Arrived:
    addresses = [str(entity["url"]) for entity in message.entities if "url" in entity]
    file = message.file
    return Arrived(
        message_id=str(message.message_id),
        text=" ".join([message.text, *addresses]),
        buttons=tuple((button["text"], button["callback_data"]) for row in message.keyboard for button in row),
        file=None
        if file is None
        else ArrivedFile(content=file.content, mime_type=file.mime_type, filename=file.filename),
    )


@asynccontextmanager
async def telegram_case(patch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
    async with FakeTelegram() as fake:
        ana = fake.person("Ana")
        await fake.person_says(ana, ana, "/start")
        fake._pending.clear()

        def keeps(content: bytes) -> Attachment:
            file = fake.upload("document", content, "a.bin", "application/octet-stream")
            return Attachment(kind="document", ref=file.file_id)

        def handle() -> str:
            fake._presses["pressed"] = Press("pressed")
            return "pressed"

        async def writes(text: str) -> None:
            await fake.person_says(ana, ana, text)

        yield ChannelCase(
            channel=TelegramChannel,
            settings={
                "TELEGRAM_BOT_TOKEN": fake.token,
                "TELEGRAM_WEBHOOK_SECRET": SECRET,
                "TELEGRAM_API_URL": fake.url,
            },
            address=Address(channel="telegram", account=str(fake.bot.id), place=str(ana.id)),
            webhook=webhook(),
            platform=Platform(fake, ana, patch),
            keeps=keeps,
            handle=handle,
            answered=answered,
            writes=writes,
        )


# ── The documented fields of a Message and its text styles, each with a value, and whether it spoils ──


ALWAYS = {"chat", "date", "from", "message_id", "text"}
HARMLESS: dict[str, Any] = {
    "author_signature": "Ana",
    "direct_messages_topic": {"topic_id": 1},
    "entities": [],
    "has_protected_content": True,
    "is_topic_message": True,
    "link_preview_options": {"is_disabled": True},
    "message_thread_id": 3,
    "paid_star_count": 5,
    "reply_to_message": {"message_id": 4, "date": 1767225600, "chat": {"id": 5001, "type": "private"}},
    "sender_boost_count": 1,
    "sender_tag": "treasurer",
}
FILE = {"file_id": "F", "file_unique_id": "f"}
CHAT = {"id": -1009876543210, "title": "News", "type": "channel"}
BOB = {"id": 5002, "is_bot": False, "first_name": "Bob"}
SAMPLES: dict[str, Any] = {
    "caption": "yes",
    "caption_entities": [{"type": "bold", "offset": 0, "length": 3}],
    "contact": {"phone_number": "+15557654321", "first_name": "Bob"},
    "edit_date": 1767225601,
    "forward_date": 1767225600,
    "location": {"latitude": 48.2, "longitude": 16.4},
    "migrate_from_chat_id": -4001,
    "migrate_to_chat_id": -1009876543211,
    "photo": [FILE | {"width": 90, "height": 90}],
    "sender_chat": CHAT,
    "via_bot": {"id": 5003, "is_bot": True, "first_name": "Gif"},
    **dict.fromkeys(("animation", "audio", "document", "sticker", "video", "video_note", "voice"), FILE),
    **dict.fromkeys(("is_automatic_forward", "is_from_offline", "is_paid_post", "group_chat_created"), True),
}
NEWER = """community_chat_added community_chat_joined community_chat_removed ephemeral_message_id receiver_user
    rich_message""".split()  # noqa: SIM905
UNDOCUMENTED = """forward_date forward_from forward_from_chat forward_from_message_id forward_sender_name
    forward_signature left_chat_participant new_chat_member new_chat_participant""".split()  # noqa: SIM905
"""Undocumented fields that public bots have logged."""

DOCUMENTED = {
    "from" if name == "from_user" else name
    for shape in telegram.Message.__mro__
    for name in getattr(shape, "__slots__", ())
    if not name.startswith("_") and name != "api_kwargs"
}
STYLES = {str(kind) for kind in MessageEntityType}
FINE = {"bold", "bot_command", "cashtag", "code", "email", "hashtag", "italic", "mention", "phone_number"}
FINE |= {"underline", "url"}

FIELDS = [
    *(MessageField(name=name, value=value, spoils=False) for name, value in HARMLESS.items()),
    *(
        MessageField(name=name, value=SAMPLES.get(name, {}), spoils=True)
        for name in sorted({*DOCUMENTED, *NEWER, *UNDOCUMENTED} - ALWAYS - HARMLESS.keys())
    ),
    *(
        MessageField(
            name="entities",
            value=[{"type": kind, "offset": 0, "length": 3, "user": BOB}],
            spoils=kind not in FINE,
        )
        for kind in sorted(STYLES)
    ),
]
