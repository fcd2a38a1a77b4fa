"""The documented fields of a message event and what its blocks may hold, each with a value, and whether it spoils.

Fields: the interfaces GenericMessageEvent, FileShareMessageEvent, ThreadBroadcastMessageEvent and AppMentionEvent of
https://docs.slack.dev/tools/node-slack-sdk/reference/types, and what public bots have logged beside them. Elements and
styles: https://docs.slack.dev/reference/block-kit/block-elements/rich-text-section-element
"""

from __future__ import annotations

from typing import Any

from gateway.testing import MessageField

__all__ = ["FIELDS", "SHARED", "written"]

HARMLESS: dict[str, Any] = {
    "app_context": {"entities": [{"type": "slack#/types/channel_id", "value": "C1"}]},
    "assistant_thread": {"action_token": "1.2.abc"},
    "attachments": [],
    "bot_id": None,
    "channel_type": "im",
    "client_msg_id": "5f2e3c1a-7a46-4d0c-9f5e-000000000001",
    "display_as_bot": False,
    "edited": None,
    "event_ts": "1767225600.000001",
    "files": [],
    "is_locked": False,
    "is_starred": True,
    "latest_reply": "1767225600.000001",
    "parent_user_id": "U061F7AUR",
    "pinned_to": ["D024BE91L"],
    "reactions": [{"name": "eyes", "count": 1, "users": ["U061F7AUR"]}],
    "reply_count": 1,
    "reply_users": ["U061F7AUR"],
    "reply_users_count": 1,
    "source_team": "T061EG9R6",
    "subscribed": True,
    "subtype": None,
    "team": "T061EG9R6",
    "thread_ts": "1767225500.000001",
    "upload": False,
    "user_profile": {"display_name": "ana"},
    "user_team": "T061EG9R6",
}
SHARED = [
    {
        "ts": "1767225500.000100",
        "author_id": "U2",
        "channel_id": "C2",
        "channel_team": "T061EG9R6",
        "is_msg_unfurl": True,
        "is_share": True,
        "message_blocks": [],
        "text": "Shall I delete the staging database?",
        "from_url": "https://tests.slack.com/archives/C2/p1767225500000100",
    }
]
"""Another message that is passed on; what is written beside it is the event's own text."""
SPOILS: list[tuple[str, Any]] = [
    ("app_id", "A1"),
    ("attachments", SHARED),
    ("attachments", [{"is_app_unfurl": True, "title": "Report"}]),
    ("bot_profile", {"id": "B1"}),
    ("display_as_bot", True),
    ("edited", {"user": "U1", "ts": "1767225600.000002"}),
    ("files", [{"id": "F1"}]),
    ("hidden", True),
    ("icons", {"emoji": ":robot_face:"}),
    ("is_ephemeral", True),
    ("metadata", {"event_type": "asked", "event_payload": {}}),
    ("root", {"ts": "1767225500.000001"}),
    ("subtype", "thread_broadcast"),
    ("subtype", "me_message"),
    ("upload", True),
    ("username", "ana"),
    ("x_files", ["F1"]),
    ("text", "~yes~"),
    ("text", "&gt; yes"),
    ("text", "```yes```"),
]
FINE_ELEMENTS = ("text", "emoji", "link", "user", "usergroup", "channel", "team", "broadcast", "color")
OTHER_ELEMENTS = (
    "attachment_mention",
    "canvas",
    "canvas_message_unfurl",
    "canvas_user_mention",
    "citation",
    "date",
    "file",
    "list_record",
    "message_mention",
    "salesforce_data_field",
    "tag",
    "work_object_mention",
    "workflow_mention",
)
STYLES = {
    **dict.fromkeys(("bold", "italic", "underline", "code", "unlink", "highlight", "client_highlight"), False),
    "strike": True,
}


def written(element: dict[str, Any], *, in_: str = "rich_text_section", block: str = "rich_text") -> list[Any]:
    """The blocks that a client makes of what is typed."""
    return [{"type": block, "block_id": "b", "elements": [{"type": in_, "elements": [element]}]}]


WORDS = {"type": "text", "text": "yes"}
BLOCKS = [
    *((written({"type": element}), False) for element in FINE_ELEMENTS),
    *((written({"type": element}), True) for element in OTHER_ELEMENTS),
    *((written(WORDS | {"style": {style: True}}), spoils) for style, spoils in STYLES.items()),
    (written(WORDS | {"style": {"strike": False}}), False),
    *((written(WORDS, in_=f"rich_text_{each}"), True) for each in ("quote", "preformatted", "list")),
    *(([{"type": block}], True) for block in ("section", "header", "context", "image", "video", "markdown", "table")),
    (None, False),
    ([], False),
]
FIELDS = [
    *(MessageField(name=name, value=value, spoils=False) for name, value in HARMLESS.items()),
    *(MessageField(name=name, value=value, spoils=True) for name, value in SPOILS),
    *(MessageField(name="blocks", value=value, spoils=spoils) for value, spoils in BLOCKS),
]
