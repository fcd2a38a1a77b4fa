"""Messages of people in the form that the model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from channels import Attachment, Media, Message
from gateway.agent import is_shown
from gateway.providers.base import ModelMessage
from gateway.tools.context import ReceivedAttachment

__all__ = ["said_messages"]


def said_messages(messages: Sequence[Message], attachments: Sequence[ReceivedAttachment]) -> list[ModelMessage]:
    """Return these messages for the model, with what was read of their `attachments`."""
    received = {each.ref: each for each in attachments}
    return [each for message in messages for each in (*_group_messages(message), _model_message(message, received))]


def _model_message(message: Message, received: Mapping[str, ReceivedAttachment]) -> ModelMessage:
    """Return a person's message in the form that the model reads: pictures and PDFs as files, others by name."""
    text = f"/{message.command} {message.text}".rstrip() if message.command else message.text
    lines: list[str] = []
    files: list[Media] = []
    for item in message.attachments:
        found = received.get(item.ref)
        if found is not None and found.media is not None and is_shown(found.media):
            files.append(found.media)
        elif found is not None and found.transcript is not None:
            lines.append(f"[voice message, as a machine heard it:] {found.transcript}")
        else:
            lines.append(_file_line(item if found is None else found))
    speaker = None
    if message.address.group and message.person is not None:
        speaker = message.person.name or message.person.user_id
    said = "\n".join([text, *lines]).strip()
    return ModelMessage(role="user", content=said, speaker=speaker, files=tuple(files))


def _file_line(item: Attachment) -> str:
    fault = f", not read: {item.fault}" if isinstance(item, ReceivedAttachment) and item.fault else ""
    scheme, _, value = item.ref.partition(":")
    place = value if (item.kind, scheme) in (("location", "geo"), ("contact", "tel")) else ""
    named = ", ".join(filter(None, [item.filename, place])) or item.mime_type or "no name"
    return f"[{item.kind}: {named}{fault}]"


def _group_messages(message: Message) -> list[ModelMessage]:
    """Return the group's preceding messages to others as one note for the model. Empty when none were kept."""
    if not message.before:
        return []
    lines = ["Written in the group before this message, not to you:", *message.before]
    return [ModelMessage(role="event", content="\n".join(lines))]
