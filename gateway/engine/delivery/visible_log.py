"""The visible log: the lines of a conversation seen by a person, for channels with a page that shows the log."""

from __future__ import annotations

from collections.abc import Sequence

from channels import Json, Message, Part
from gateway.engine.context import EngineContext
from gateway.store.transaction import Transaction
from gateway.stored import keys


def person_line(transaction: Transaction, context: EngineContext, conversation: str, message: Message) -> None:
    """Add the person's own message to the log, on a channel with a visible log."""
    channel = context.channels.get(message.address.channel)
    if channel is not None and channel.capabilities.visible:
        text = f"/{message.command} {message.text}".rstrip() if message.command else message.text
        entry: dict[str, Json] = {"message_id": message.message_id, "from": "person", "text": text}
        if message.attachments:
            entry["files"] = [
                {"ref": file.ref, "mime_type": file.mime_type, "filename": file.filename, "size": file.size}
                for file in message.attachments
            ]
        transaction.appends.append((keys.visible_log(conversation), entry))


def bot_line(
    conversation: str, part: Part, message_id: str | None, edits: str | None, asks: Sequence[str] = ()
) -> tuple[str, Json]:
    """Return the log's line for a shown part. `asks`: the actions of a prompt."""
    media: Json = None
    if part.media is not None:
        media = [
            {
                "sha256": part.media.sha256,
                "mime_type": part.media.mime_type,
                "filename": part.media.filename,
                "size": part.media.size,
                "role": part.media.role,
            }
        ]
    entry: dict[str, Json] = {
        "message_id": message_id,
        "from": "bot",
        "text": part.arguments.get("text", ""),
        "buttons": [{"label": b.label, "token": b.token, "style": b.style} for b in part.buttons],
        "media": media or [],
        "edits": edits,
    }
    entry |= {name: part.arguments[name] for name in ("exact", "settled", "small") if name in part.arguments}
    if asks:
        entry["asks"] = [*asks]
    return keys.visible_log(conversation), entry
