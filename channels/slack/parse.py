"""Parsing: one request, or one envelope of Socket Mode, to events. Pure. Builds no types of the vendor's library.

Text: https://docs.slack.dev/messaging/formatting-message-text. Slack sends mentions and addresses as ``<...>``, and
escapes ``& < >`` in the person's own words. The fields of a message event are documented in
https://docs.slack.dev/reference/events/message, and in the interfaces GenericMessageEvent, FileShareMessageEvent,
ThreadBroadcastMessageEvent and AppMentionEvent of https://docs.slack.dev/tools/node-slack-sdk/reference/types.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl

from pydantic import ValidationError

from channels.channel import Malformed, Parsed, WebhookRequest, WebhookResponse
from channels.events import Address, Attachment, ButtonPress, Message, MessageEdited, Person, Reaction, kind_of
from channels.fields import Fields, Judged
from channels.slack.payload import BlockActions, Command, Event, EventCallback, File, moment, payload_from

_OK = WebhookResponse()
"""The response with an empty body. Slack would show any other body, or replace the pressed message by the body."""
_NOTHING = Parsed((), _OK)
_NOT_UNDERSTOOD = Parsed((), _OK, not_understood=True)

_WRITTEN = frozenset({None, "file_share", "thread_broadcast"})
"""Subtypes of messages written by a person. The others report changes of a channel."""
_OF_NO_USE = frozenset({"app_home_opened"})
_NO_FILE = frozenset({"tombstone", "hidden_by_limit"})
_MOST_FIELDS = 100
_SYSTEM = "USLACK"
"""The beginning of the ids of Slack's own users, for example USLACKBOT and USLACKUSER. None of these is a person."""
_COMMAND = re.compile(r"/([^\W\d]\w*)(?:\s+(.*))?", re.DOTALL)
"""Slack accepts no slash command in a thread. There people write the command to the bot: ``@Askfirst /stop``."""


class PayloadReader:
    """Parser of one installation's payloads. `account` and `bot_user` are None until Slack has named both.

    Slack names the owner of an event in several ways. For a channel shared by several organisations Slack may name any
    organisation. So each person and place gets the bot's own account, and thereby a single address.
    """

    def __init__(self, channel: str, account: str | None = None, bot_user: str | None = None) -> None:
        self._channel, self._account, self._bot_user = channel, account, bot_user

    def read(self, request: WebhookRequest) -> Parsed:
        """Return the events of a request. Raises Malformed for a body other than a JSON object or a form in UTF-8."""
        if not request.headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
            return self.read_json(request.body)
        try:
            fields = dict(
                parse_qsl(request.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
            )
        except ValueError:
            raise Malformed("slack: the body is not a form in UTF-8") from None
        if "payload" in fields:
            return self.read_json(fields["payload"].encode())
        if "ssl_check" in fields:
            return _NOTHING
        return self.read_command(fields)

    def read_json(self, body: bytes) -> Parsed:
        """Return the events of a JSON body: an event, a press, or a URL verification.

        Raises Malformed for a body other than a JSON object.
        """
        try:
            payload = payload_from(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            if first["type"] == "json_invalid" or (first["type"] == "dict_type" and not first["loc"]):
                raise Malformed("slack: the body is not a JSON object in UTF-8") from None
            return _NOT_UNDERSTOOD
        if payload["type"] == "event_callback":
            return self._event(payload)
        if payload["type"] == "block_actions":
            return self._presses(payload)
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        return Parsed((), WebhookResponse(headers=headers, body=payload["challenge"].encode()))

    def read_command(self, fields: object) -> Parsed:
        """Return the events of a slash command."""
        try:
            command = Command.model_validate(fields)
        except ValidationError:
            return _NOT_UNDERSTOOD
        wide = command.enterprise_id if command.is_enterprise_install == "true" else None
        account = self._account or wide or command.team_id
        if not account:
            return _NOT_UNDERSTOOD
        if _is_system(command.user_id):
            return _NOTHING
        message = Message(
            event_ids=(command.trigger_id,),
            address=self._address(account, command.channel_id),
            person=self._person(account, command.user_id, command.user_name),
            answer_to=command.response_url,
            text=plain(command.text).strip(),
            # The app's name may precede the command, to make it unique in the workspace: /invoices-stop.
            command=command.command.removeprefix("/").rpartition("-")[2].lower(),
        )
        return Parsed((message,), _OK)

    # ── events ──

    def _event(self, callback: EventCallback) -> Parsed:
        event, event_id = callback["event"], callback["event_id"]
        kind, subtype = event["type"], event.get("subtype")
        if kind in _OF_NO_USE:
            return _NOTHING
        installed = next(iter(callback.get("authorizations") or ()), None)
        theirs, bot_user, ours = callback.get("team_id"), self._bot_user, tuple[str | None, ...]()
        if installed is not None:
            team, enterprise = installed.get("team_id"), installed.get("enterprise_id")
            if team is None and enterprise is None:
                team = theirs
            is_wide = installed.get("is_enterprise_install")
            theirs = (enterprise if is_wide else team) or theirs
            ours = (enterprise, callback.get("context_team_id") if is_wide else None)
            bot_user = bot_user or (installed.get("user_id") if installed.get("is_bot") else None)
            if self._account not in (None, team, enterprise):
                return _NOTHING  # the same app in another workspace, for which there is no token here
        account = self._account or theirs
        if not account:
            return _NOT_UNDERSTOOD
        match kind:
            case "message" if subtype == "message_changed":
                return self._edited(event_id, account, event, bot_user)
            case "message" | "app_mention" if subtype in _WRITTEN:
                return self._message(event_id, account, ours, event, bot_user)
            case "message":
                return _NOTHING
            case "reaction_added" | "reaction_removed":
                return self._reaction(event_id, account, event, bot_user)
            case _:
                return _NOT_UNDERSTOOD

    def _message(
        self, event_id: str, account: str, ours: Collection[str | None], event: Event, bot_user: str | None
    ) -> Parsed:
        channel, user, ts, thread_ts = event.get("channel"), event.get("user"), event.get("ts"), event.get("thread_ts")
        if event.get("bot_id") or (user and (user == bot_user or _is_system(user))):
            return _NOTHING
        if not (channel and user and ts):
            return _NOT_UNDERSTOOD
        text = event.get("text") or ""
        mentioned = event["type"] == "app_mention" or (bot_user is not None and mentions(text, bot_user))
        in_thread = thread_ts is not None and thread_ts != ts
        to_bot = in_thread and bot_user is not None and event.get("parent_user_id") == bot_user
        words, command = _words(text, bot_user), None
        # At the top of a channel Slack handles commands itself. A text with a slash there is, for example, a path.
        may_command = mentioned or in_thread or _is_direct(channel)
        if may_command and (written := _COMMAND.fullmatch(words)):
            command, words = written[1].lower(), written[2] or ""
        spoiled_by, unknown_fields = judge(event)
        message = Message(
            # Slack reports a mention in a channel that the bot reads twice: as a message and as a mention.
            event_ids=(event_id, f"{channel}/{ts}"),
            address=self._address(account, channel, _thread(channel, ts, thread_ts)),
            person=self._person(account, user, home=event.get("user_team"), ours=ours),
            sent_at=moment(ts),
            text=words,
            command=command,
            message_id=ts,
            reply_to=thread_ts if to_bot else None,
            attachments=_attachments(event.get("files") or ()),
            mentions_bot=mentioned,
            answers_bot=to_bot,
            shared=_shared(event.get("attachments")),
            spoiled_by=spoiled_by,
            unknown_fields=unknown_fields,
        )
        return Parsed((message,), _OK)

    def _edited(self, event_id: str, account: str, event: Event, bot_user: str | None) -> Parsed:
        channel, now, before = event.get("channel"), event.get("message"), event.get("previous_message")
        if not channel or now is None:
            return _NOT_UNDERSTOOD
        text, user = now.get("text"), now.get("user")
        # Slack also reports a change when it adds the preview of a link to a message.
        unchanged = before is not None and before.get("text") == text
        if unchanged or now.get("bot_id") or not user or _is_system(user) or now.get("subtype") not in _WRITTEN:
            return _NOTHING
        edited = MessageEdited(
            event_ids=(event_id,),
            address=self._address(account, channel, _thread(channel, now["ts"], now.get("thread_ts"))),
            person=self._person(account, user),
            sent_at=moment(event.get("ts") or ""),
            message_id=now["ts"],
            text=_words(text or "", bot_user),
        )
        return Parsed((edited,), _OK)

    def _reaction(self, event_id: str, account: str, event: Event, bot_user: str | None) -> Parsed:
        item, user, emoji = event.get("item"), event.get("user"), event.get("reaction")
        if not user or not emoji or item is None:
            return _NOT_UNDERSTOOD
        channel, ts = item.get("channel"), item.get("ts")
        if item["type"] != "message" or not channel or not ts or user == bot_user or _is_system(user):
            return _NOTHING
        reaction = Reaction(
            event_ids=(event_id,),
            # Slack does not name the thread of the message.
            address=self._address(account, channel),
            person=self._person(account, user),
            sent_at=moment(event.get("event_ts") or ""),
            message_id=ts,
            emoji=emoji,
            added=event["type"] == "reaction_added",
        )
        return Parsed((reaction,), _OK)

    # ── presses ──

    def _presses(self, actions: BlockActions) -> Parsed:
        container, user, team = actions["container"], actions["user"], actions.get("team")
        enterprise, channel, under = actions.get("enterprise"), actions.get("channel"), actions.get("message")
        wide = enterprise["id"] if actions.get("is_enterprise_install") and enterprise else None
        account = self._account or wide or (team["id"] if team else user.get("team_id"))
        place = channel["id"] if channel else container.get("channel_id")
        message_id = container.get("message_ts")
        pressed = [a for a in actions["actions"] if a["type"] == "button" and a.get("value") and a.get("action_ts")]
        if not (account and place and message_id and pressed):
            return _NOT_UNDERSTOOD
        if _is_system(user["id"]):
            return _NOTHING
        thread = (under.get("thread_ts") if under else None) or container.get("thread_ts")
        # A message that begins a thread names itself as its thread.
        address = self._address(account, place, None if thread == message_id else thread)
        presses = (
            ButtonPress(
                # Slack gives a press no id, so one is built.
                event_ids=(f"{user['id']}/{place}/{message_id}/{action.get('action_id', '')}/{action['action_ts']}",),
                address=address,
                person=self._person(
                    account,
                    user["id"],
                    user.get("username") or user.get("name"),
                    home=user.get("team_id"),
                    # `team` may be the presser's own: for a whole organisation it proves nothing.
                    ours=(enterprise["id"] if enterprise else None,),
                ),
                sent_at=moment(action["action_ts"]),
                answer_to=_answer_to(actions.get("response_url"), address.thread),
                token=action.get("value") or "",
                message_id=message_id,
            )
            for action in pressed
        )
        return Parsed(tuple(presses), _OK)

    # ── persons and places ──

    def _address(self, account: str, place: str, thread: str | None = None) -> Address:
        return Address(channel=self._channel, account=account, place=place, thread=thread, group=not _is_direct(place))

    def _person(
        self,
        account: str,
        user_id: str | None,
        name: str | None = None,
        *,
        home: str | None = None,
        ours: Collection[str | None] = (),
    ) -> Person:
        """Return a person. `home` is the person's own workspace, and `ours` are the workspaces of the installation."""
        is_guest = home is not None and home not in (account, *ours)
        return Person(
            channel=self._channel, account=account, user_id=user_id or "", name=name or None, is_guest=is_guest
        )


def _answer_to(url: str | None, thread: str | None) -> str | None:
    """Return the handle for an answer to the presser: the response URL, and the thread of the pressed message."""
    return f"{url}#{thread}" if url and thread else url


def _words(text: str, bot_user: str | None) -> str:
    return plain(text if bot_user is None else without_mention(text, bot_user)).strip()


def _is_system(user: str) -> bool:
    return user.startswith(_SYSTEM)


def _is_direct(place: str) -> bool:
    """Return True for a private chat. https://docs.slack.dev/apis/web-api/using-the-conversations-api"""
    return place.startswith("D")


def _thread(place: str, ts: str, thread_ts: str | None) -> str | None:
    """Return the thread of a message. In a channel a message outside of threads begins one, in a private chat not."""
    return thread_ts or (None if _is_direct(place) else ts)


def _attachments(files: Sequence[File]) -> tuple[Attachment, ...]:
    """Return the files. A file of another organisation has no URL: the ref is its id, and a fetch is impossible."""
    return tuple(
        Attachment(
            kind=_kind(file),
            ref=file.get("url_private_download") or file.get("url_private") or file["id"],
            mime_type=file.get("mimetype") or None,
            filename=file.get("name") or None,
            size=file.get("size"),
        )
        for file in files
        if file.get("mode") not in _NO_FILE
    )


def _shared(attachments: Any) -> tuple[str, ...]:
    """Return the texts of forwarded messages, each with its writer. A link to a message is no forwarded message."""
    listed = attachments if isinstance(attachments, list) else []
    found = [each for each in listed if isinstance(each, dict) and each.get("is_share") is True]
    texts = [(each.get("author_name"), each.get("text") or each.get("fallback")) for each in found]
    return tuple(
        f"{writer}: {plain(text)}" if isinstance(writer, str) and writer else plain(text)
        for writer, text in texts
        if isinstance(text, str) and text
    )


def _kind(file: File) -> Literal["image", "audio", "voice", "video", "document"]:
    if file.get("subtype") == "slack_audio":
        return "voice"
    return kind_of(file.get("mimetype") or "")


_TOKEN = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_AROUND = " \t\r\n,:"
_ESCAPED = re.compile(r"&(?:amp|lt|gt);")


def plain(text: str) -> str:
    """Return the text as shown to the person: ``@name`` for a mention, ``label (address)`` for a link."""
    pieces: list[str] = []
    done = 0
    if "<" not in text:  # nearly always
        return _unescaped(text)
    for found in _TOKEN.finditer(text):
        pieces += (_unescaped(text[done : found.start()]), _unescaped(_shown(found[1], found[2])))
        done = found.end()
    return "".join((*pieces, _unescaped(text[done:])))


def mentions(text: str, user_id: str) -> bool:
    return "<@" in text and any(found[1] == f"@{user_id}" for found in _TOKEN.finditer(text))


def without_mention(text: str, user_id: str) -> str:
    """Return the text without a mention of this user at its beginning or end, which only addresses the message."""
    words = text.strip()
    if "<@" not in words:
        return words
    if (first := _TOKEN.match(words)) and first[1] == f"@{user_id}":
        words = words[first.end() :].lstrip(_AROUND)
    if (last := _TOKEN.fullmatch(words[max(0, words.rfind("<")) :])) and last[1] == f"@{user_id}":
        words = words[: words.rfind("<")].rstrip(_AROUND)
    return words


def _shown(target: str, label: str | None) -> str:
    if target.startswith(("@", "#")):
        return f"{target[0]}{label or target[1:]}"
    if target.startswith("!"):
        # <!here>, <!subteam^S1|@team>, <!date^1392734382^{date}|fallback>
        return label or f"@{target[1:].partition('^')[0]}"
    address = target.removeprefix("mailto:")
    return (
        address if not label or label in (target, address) or target.endswith(f"//{label}") else f"{label} ({address})"
    )


def _unescaped(text: str) -> str:
    """Unescape once: ``&amp;lt;`` becomes ``&lt;``, as written by the person."""
    return _ESCAPED.sub(lambda found: html.unescape(found[0]), text)


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
"""Ordinary words with their styles, mentions, and elements found by Slack itself."""
_SPOILING = frozenset(
    """rich_text_list rich_text_preformatted rich_text_quote strike
    attachment_mention canvas canvas_message_unfurl canvas_user_mention citation date file list_record message_mention
    salesforce_data_field tag work_object_mention workflow_mention
    actions alert card carousel context context_actions divider header image input markdown plan section table
    task_card video""".split()  # noqa: SIM905
)
"""Quotes, strikethrough, references to other objects, and blocks posted only by apps."""
_MARKED = re.compile(r"~[^~\n]+~|```|^[ \t]*(?:&gt;|>)", re.MULTILINE)
"""Strikethrough, preformatted or quoted words, in a text without blocks."""


def judge(event: Event) -> Judged:
    """Return the names of the spoiling fields and marks of a message event, and of the unknown ones."""
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
