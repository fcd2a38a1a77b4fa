"""The fields of a Message, harmless and spoiling. https://core.telegram.org/bots/api#message, Bot API 10.3

The lists also hold fields of older servers and undocumented ones, like ``forward_from`` beside ``forward_origin``.
"""

from __future__ import annotations

from channels.fields import Fields, Judged
from channels.telegram.payload import Message

__all__ = ["FIELDS", "SERVICE", "judge"]

SERVICE = frozenset(
    """boost_added channel_chat_created chat_background_set chat_owner_changed chat_owner_left chat_shared
    checklist_tasks_added checklist_tasks_done community_chat_added community_chat_joined community_chat_removed
    connected_website delete_chat_photo direct_message_price_changed forum_topic_closed forum_topic_created
    forum_topic_edited forum_topic_reopened general_forum_topic_hidden general_forum_topic_unhidden gift
    gift_upgrade_sent giveaway_completed giveaway_created group_chat_created left_chat_member left_chat_participant
    managed_bot_created message_auto_delete_timer_changed migrate_from_chat_id migrate_to_chat_id new_chat_member
    new_chat_members new_chat_participant new_chat_photo new_chat_title paid_message_price_changed pinned_message
    poll_option_added poll_option_deleted proximity_alert_triggered suggested_post_approval_failed
    suggested_post_approved suggested_post_declined suggested_post_paid suggested_post_refunded
    supergroup_chat_created unique_gift users_shared video_chat_ended video_chat_participants_invited
    video_chat_scheduled video_chat_started write_access_allowed""".split()  # noqa: SIM905
)
"""Fields of service messages, which report an event in a chat. No person wrote them."""

FIELDS = Fields(
    harmless=frozenset(
        # `sender` is the name in `payload` for the API's "from".
        """author_signature chat date direct_messages_topic entities has_protected_content is_topic_message
        link_preview_options message_id message_thread_id paid_star_count reply_to_message sender sender_boost_count
        sender_tag text""".split()  # noqa: SIM905
    ),
    spoiling=SERVICE
    | frozenset(
        """animation audio business_connection_id caption caption_entities checklist contact dice document edit_date
        effect_id ephemeral_message_id external_reply forward_date forward_from forward_from_chat
        forward_from_message_id forward_origin forward_sender_name forward_signature game giveaway giveaway_winners
        guest_bot_caller_chat guest_bot_caller_user guest_query_id has_media_spoiler invoice is_automatic_forward
        is_from_offline is_paid_post live_photo location media_group_id paid_media passport_data photo poll quote
        receiver_user refunded_payment reply_markup reply_to_checklist_task_id reply_to_poll_option_id reply_to_story
        rich_message sender_business_bot sender_chat show_caption_above_media sticker story successful_payment
        suggested_post_info venue via_bot video video_note voice web_app_data""".split()  # noqa: SIM905
    ),
)

# https://core.telegram.org/bots/api#messageentity
_FINE = frozenset(
    "bold bot_command cashtag code email hashtag italic mention phone_number underline url".split()  # noqa: SIM905
)
"""Styles of ordinary words, and entities that Telegram finds by itself, as a code may look like a phone number."""
_STYLED = frozenset(
    """blockquote custom_emoji date_time expandable_blockquote pre spoiler strikethrough text_link
    text_mention""".split()  # noqa: SIM905
)
"""Styles that strike the words out, hide them, quote them, or show another text in their place."""


def judge(message: Message, account: str) -> Judged:
    """Return the names of fields and styles that spoil a message, and of unknown ones. `account` is the bot's id."""
    spoiled_by, unknown_fields = FIELDS.judge(message)
    kinds = {entity["type"] for entity in message.get("entities") or ()} - _FINE
    if "text_mention" in kinds and _only_the_bot_is_meant(message, account):
        kinds.discard("text_mention")
    if kinds:
        spoiled_by += tuple(f"entities.{kind}" for kind in sorted(kinds & _STYLED))
        unknown_fields += tuple(f"entities.{kind}" for kind in sorted(kinds - _STYLED))
    return spoiled_by, unknown_fields


def _only_the_bot_is_meant(message: Message, account: str) -> bool:
    mentioned = [entity.get("user") for entity in message["entities"] if entity["type"] == "text_mention"]
    return all(user is not None and str(user["id"]) == account for user in mentioned)
