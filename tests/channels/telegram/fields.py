"""The documented fields of a Message and its text styles, each with a value, and whether it spoils.

Which there are says the vendor's library; what came after its Bot API 10.0 is named here. All of them spoil but those
of `HARMLESS`. https://core.telegram.org/bots/api#message
"""

from __future__ import annotations

from typing import Any

import telegram
from telegram.constants import MessageEntityType

from gateway.testing import MessageField

__all__ = ["DOCUMENTED", "FIELDS", "STYLES"]

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
"""Sent all the same, as public bots have logged them."""

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
