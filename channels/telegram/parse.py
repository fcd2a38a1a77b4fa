"""Parsing: one Update to events. Pure. Builds no types of the vendor's library.

The fields of a Message are in https://core.telegram.org/bots/api#message, Bot API 10.3. The lists here also hold fields
of older servers and undocumented fields, like ``forward_from`` beside ``forward_origin``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

from channels.channel import Malformed, Parsed, WebhookResponse
from channels.events import (
    Address,
    Attachment,
    ButtonPress,
    ConversationMoved,
    DeliveryReport,
    Event,
    MessageEdited,
    OptOut,
    Person,
)
from channels.events import Message as MessageEvent
from channels.fields import Fields, Judged
from channels.telegram.payload import Callback, Chat, Entity, File, MemberChange, Message, User, moment, update_from

_CARRIED = frozenset(
    "photo audio voice video video_note animation document sticker location contact".split()  # noqa: SIM905
)
_FORWARDED = frozenset({"forward_origin", "forward_date"})
_INLINE = "inline"
"""The place of presses under inline results. No chat has this place, because the id of a chat is a number."""

_OK = WebhookResponse()
_NOTHING = Parsed((), _OK)
_NOT_UNDERSTOOD = Parsed((), _OK, not_understood=True)


class UpdateReader:
    """Parser of one bot's updates. `username` is None until Telegram has answered with the bot's name."""

    def __init__(self, channel: str, account: str, username: str | None = None) -> None:
        self._channel, self._account, self._username = channel, account, username
        name = re.escape(username or "")
        self._mention_at_an_end = re.compile(rf"^\s*@{name}\b[\s,:]*|[\s,]*@{name}\s*$", re.IGNORECASE)

    def read(self, body: bytes) -> Parsed:
        """Return the events of an update. Raises Malformed for a body other than a JSON object in UTF-8."""
        try:
            update = update_from(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            if first["type"] == "json_invalid" or not first["loc"]:
                raise Malformed("telegram: the body is not a JSON object in UTF-8") from None
            return _NOT_UNDERSTOOD
        ids = (str(update["update_id"]),)
        if message := update.get("message") or update.get("channel_post"):
            return self._message(ids, message)
        if edited := update.get("edited_message") or update.get("edited_channel_post"):
            return Parsed((self._edited(ids, edited),), _OK)
        if press := update.get("callback_query"):
            return self._press(ids, press)
        if change := update.get("my_chat_member"):
            return self._membership(ids, change)
        return _NOT_UNDERSTOOD

    def _message(self, ids: tuple[str, ...], message: Message) -> Parsed:
        address = self._address(message)
        if (moved_to := message.get("migrate_to_chat_id")) is not None:
            return self._moved(ids, address, self._place(str(moved_to), group=True))
        if (moved_from := message.get("migrate_from_chat_id")) is not None:
            return self._moved(ids, self._place(str(moved_from), group=True), address)
        attachments = _attachments(message)
        written_text = message.get("text")
        if written_text is None:
            written_text = message.get("caption")
        if written_text is None and not attachments:
            return _NOT_UNDERSTOOD if SERVICE.isdisjoint(message) else _NOTHING
        text = whole = written_text or ""
        entities = message.get("entities") or message.get("caption_entities") or ()
        command: str | None = None
        forwarded = not _FORWARDED.isdisjoint(message)
        written = _command(text, entities) if not forwarded else None
        if written:
            command, _, addressee = written[1:].partition("@")
            if addressee and self._username and addressee.lower() != self._username.lower():
                return _NOTHING
            text = text[len(written) :].strip()
        mentioned = self._mentioned(whole, entities)
        if mentioned and not command:
            text = self._mention_at_an_end.sub("", text)
        answered = message.get("reply_to_message")
        if answered and message.get("is_topic_message") and answered["message_id"] == message.get("message_thread_id"):
            answered = None  # each message of a topic "replies" to the message that opened the topic
        answered_person = answered.get("sender") if answered else None
        to_bot = answered_person is not None and str(answered_person["id"]) == self._account
        spoiled_by, unknown_fields = judge(message, self._account)
        event = MessageEvent(
            event_ids=ids,
            address=address,
            person=self._sender(message),
            sent_at=moment(message.get("date", 0)),
            text=text,
            message_id=str(message["message_id"]),
            command=command.lower() if command else None,
            reply_to=str(answered["message_id"]) if answered else None,
            attachments=attachments,
            album=message.get("media_group_id"),
            mentions_bot=mentioned,
            answers_bot=to_bot,
            forwarded=forwarded,
            via_bot=message.get("via_bot") is not None,
            spoiled_by=spoiled_by,
            unknown_fields=unknown_fields,
        )
        return Parsed((event,), _OK)

    def _moved(self, ids: tuple[str, ...], old: Address, new: Address) -> Parsed:
        """Return the move of a group, now a supergroup.

        Telegram reports the move twice, in the old group and in the new group; both reports share an event id.
        """
        both = (*ids, f"moved/{old.place}/{new.place}")
        return Parsed((ConversationMoved(event_ids=both, address=new, person=None, came_from=old),), _OK)

    def _edited(self, ids: tuple[str, ...], message: Message) -> Event:
        return MessageEdited(
            event_ids=ids,
            address=self._address(message),
            person=self._sender(message),
            sent_at=moment(message.get("edit_date") or 0),
            message_id=str(message["message_id"]),
            text=message.get("text") or message.get("caption") or "",
        )

    def _press(self, ids: tuple[str, ...], callback: Callback) -> Parsed:
        token = callback.get("data")
        if token is None:
            return _NOT_UNDERSTOOD
        message, sender = callback.get("message"), callback["sender"]
        press = ButtonPress(
            event_ids=ids,
            # Without a message the button was under an inline result, in a chat that Telegram does not name. No prompt
            # was shown at this address, so the press decides no action.
            address=self._address(message) if message else self._place(_INLINE, group=True),
            person=self._person(sender),
            answer_to=callback["id"],
            token=token,
            message_id=str(message["message_id"]) if message else None,
        )
        return Parsed((press,), _OK)

    def _membership(self, ids: tuple[str, ...], change: MemberChange) -> Parsed:
        address = self._place(str(change["chat"]["id"]), group=_is_group(change["chat"]))
        person = self._person(change["sender"])
        sent_at = moment(change.get("date", 0))
        member = change["new_chat_member"]
        status = member["status"]
        reachable = status in ("creator", "administrator", "member") or (
            status == "restricted" and member.get("is_member", True) and member.get("can_send_messages", True)
        )
        if not address.group:
            opt = OptOut(event_ids=ids, address=address, person=person, sent_at=sent_at, opted_in=reachable)
            return Parsed((opt,), _OK)
        report = DeliveryReport(
            event_ids=ids,
            address=address,
            person=person,
            sent_at=sent_at,
            status="delivered" if reachable else "failed",
            code=None if reachable else status,
        )
        return Parsed((report,), _OK)

    def _address(self, message: Message) -> Address:
        chat = message["chat"]
        thread = message.get("message_thread_id") if message.get("is_topic_message") else None
        return self._place(str(chat["id"]), group=_is_group(chat), thread=None if thread is None else str(thread))

    def _place(self, place: str, *, group: bool = False, thread: str | None = None) -> Address:
        return Address(channel=self._channel, account=self._account, place=place, thread=thread, group=group)

    def _sender(self, message: Message) -> Person | None:
        """Return the writer. A chat that writes in its own name (a channel, an anonymous admin) counts as a bot."""
        chat, sender = message.get("sender_chat"), message.get("sender")
        if chat is None and sender is None and message["chat"]["type"] == "channel":
            chat = message["chat"]
        if chat is not None:
            return Person(
                channel=self._channel,
                account=self._account,
                user_id=str(chat["id"]),
                name=chat.get("title"),
                is_bot=True,
            )
        return self._person(sender) if sender else None

    def _person(self, user: User) -> Person:
        return Person(
            channel=self._channel,
            account=self._account,
            user_id=str(user["id"]),
            name=f"{user.get('first_name', '')} {user.get('last_name', '')}".strip() or None,
            handle=user.get("username"),
            language=user.get("language_code"),
            is_bot=user.get("is_bot", False),
        )

    def _mentioned(self, text: str, entities: Sequence[Entity]) -> bool:
        if not entities:
            return False
        units = text.encode("utf-16-le")
        for entity in entities:
            user = entity.get("user")
            if entity["type"] == "text_mention" and user and str(user["id"]) == self._account:
                return True
            if self._username and entity["type"] in ("mention", "bot_command"):
                _, _, name = _covered(units, entity).partition("@")
                if name.lower() == self._username.lower():
                    return True
        return False


def _attachments(message: Message) -> tuple[Attachment, ...]:
    """Return the files, location and contact of a message. The largest of the several sizes of a picture is taken."""
    if _CARRIED.isdisjoint(message):
        return ()
    picture = max(message.get("photo", ()), key=lambda photo: photo["width"] * photo["height"], default=None)
    animation = message.get("animation")
    # Telegram sends an animation as a document too.
    document = message.get("document") if animation is None else None
    found = [
        _file("image", picture, "image/jpeg"),
        _file("audio", message.get("audio")),
        _file("voice", message.get("voice"), "audio/ogg"),
        _file("video", message.get("video"), "video/mp4"),
        _file("video", message.get("video_note"), "video/mp4"),
        _file("video", animation, "video/mp4"),
        _file("document", document),
        _file("sticker", message.get("sticker")),
    ]
    if place := message.get("location"):
        found.append(Attachment(kind="location", ref=f"geo:{place['latitude']},{place['longitude']}"))
    if contact := message.get("contact"):
        name = f"{contact.get('first_name', '')} {contact.get('last_name', '')}".strip()
        found.append(Attachment(kind="contact", ref=f"tel:{contact['phone_number']}", filename=name or None))
    return tuple(attachment for attachment in found if attachment)


def _file(
    kind: Literal["image", "audio", "voice", "video", "document", "sticker"], file: File | None, mime_type: str = ""
) -> Attachment | None:
    if file is None:
        return None
    return Attachment(
        kind=kind,
        ref=file["file_id"],
        mime_type=file.get("mime_type") or mime_type or None,
        filename=file.get("file_name"),
        size=file.get("file_size"),
    )


def _command(text: str, entities: Sequence[Entity]) -> str | None:
    """Return the command at the beginning of a text, like ``/start@SomeBot``, or None."""
    first = next((each for each in entities if each["type"] == "bot_command" and each["offset"] == 0), None)
    return _covered(text.encode("utf-16-le"), first) if first else None


def _covered(units: bytes, entity: Entity) -> str:
    """Return the text of an entity, cut from the whole text in UTF-16."""
    return units[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])].decode("utf-16-le", "replace")


def _is_group(chat: Chat) -> bool:
    return chat["type"] != "private"


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
"""Fields of service messages. These report an event in a chat and are written by no person."""

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
"""Styles of ordinary words, and entities found by Telegram itself, as a code may look like a phone number."""
_STYLED = frozenset(
    """blockquote custom_emoji date_time expandable_blockquote pre spoiler strikethrough text_link
    text_mention""".split()  # noqa: SIM905
)
"""Styles that strike out, hide or quote the words, or show another text in their place."""


def judge(message: Message, account: str) -> Judged:
    """Return the names of spoiling fields and styles of a message, and of unknown ones. `account` is the bot's id."""
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
