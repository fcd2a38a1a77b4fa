"""The fields of a message event, harmless and spoiling.

https://docs.slack.dev/reference/events/message, and the interfaces GenericMessageEvent, FileShareMessageEvent,
ThreadBroadcastMessageEvent and AppMentionEvent of https://docs.slack.dev/tools/node-slack-sdk/reference/types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from channels.fields import Fields, Judged
from channels.slack.payload import Event

__all__ = ["FIELDS", "judge"]

FIELDS = Fields(
    harmless=frozenset(
        """app_context assistant_thread blocks bot_id channel channel_type client_msg_id event_ts is_locked is_starred
        last_read latest_reply no_notifications parent_user_id permalink pinned_to reactions reply_count reply_users
        reply_users_count source_team subscribed team text thread_ts ts type user user_profile user_team""".split()  # noqa: SIM905
    ),
    spoiling=frozenset(
        """app_id attachments bot_profile display_as_bot edited files hidden icons inviter is_ephemeral item item_type
        message metadata previous_message purpose reaction room root subtype topic upload username x_files""".split()  # noqa: SIM905
    ),
)

# https://docs.slack.dev/reference/block-kit/blocks/rich-text-block
_FINE = frozenset(
    """rich_text rich_text_section broadcast channel color emoji link team text user usergroup
    bold client_highlight code highlight italic underline unlink""".split()  # noqa: SIM905
)
"""Ordinary words with their styles, mentions, and elements that Slack finds by itself."""
_SPOILING = frozenset(
    """rich_text_list rich_text_preformatted rich_text_quote strike
    attachment_mention canvas canvas_message_unfurl canvas_user_mention citation date file list_record message_mention
    salesforce_data_field tag work_object_mention workflow_mention
    actions alert card carousel context context_actions divider header image input markdown plan section table
    task_card video""".split()  # noqa: SIM905
)
"""Quotes, strikethrough, references to other objects, and blocks that only apps post."""
_MARKED = re.compile(r"~[^~\n]+~|```|^[ \t]*(?:&gt;|>)", re.MULTILINE)
"""Strikethrough, preformatted or quoted words, in a text without blocks."""


def judge(event: Event) -> Judged:
    """Return the names of fields and marks that spoil a message event, and of the unknown ones."""
    spoiled_by, unknown_fields = FIELDS.judge(event)
    marks = set(_marks(event.get("blocks"))) - _FINE
    if marks:
        spoiled_by += tuple(f"blocks.{mark}" for mark in sorted(marks & _SPOILING))
        unknown_fields += tuple(f"blocks.{mark}" for mark in sorted(marks - _SPOILING))
    text = event.get("text") or ""
    if ("~" in text or "`" in text or ">" in text or "&gt;" in text) and _MARKED.search(text):
        spoiled_by += ("text",)
    return spoiled_by, unknown_fields


def _marks(blocks: Any) -> Iterator[str]:
    """Yield the type and the styles of each element of a message's blocks."""
    waiting = [blocks]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            yield str(node.get("type"))
            style = node.get("style")
            if isinstance(style, dict):
                yield from [name for name, is_on in style.items() if is_on]
            waiting.append(node.get("elements"))
        elif node is not None:
            yield type(node).__name__
