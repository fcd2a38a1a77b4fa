"""The visible log: the lines of a conversation seen by a person, for channels with a page that shows the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from channels import Feedback, Json, Message, Part
from gateway.engine.context import EngineContext
from gateway.observe.trace import TraceStep
from gateway.store.transaction import Transaction
from gateway.store.types import Key
from gateway.stored import keys

_MOST_STEPS: Final = 50
_LINES_READ: Final = 1_000
"""Lines in which a rated message is looked for."""


def person_line(transaction: Transaction, context: EngineContext, conversation: str, message: Message) -> None:
    """Add the person's own message to the log, on a channel with a visible log."""
    channel = context.channels.get(message.address.channel)
    if channel is not None and channel.capabilities.visible:
        entry: dict[str, Json] = {"message_id": message.message_id, "from": "person", "text": message.written}
        if message.attachments:
            entry["files"] = [
                {"ref": file.ref, "mime_type": file.mime_type, "filename": file.filename, "size": file.size}
                for file in message.attachments
            ]
        transaction.appends.append((keys.visible_log(conversation), entry))


def bot_line(
    conversation: str,
    part: Part,
    message_id: str | None,
    edits: str | None,
    asks: Sequence[str] = (),
    *,
    run_id: str = "",
) -> tuple[str, Json]:
    """Return the log's line for a shown part. `asks`: the actions of a prompt. `run_id`: the run of the reply."""
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
        "run": run_id,
    }
    entry |= {name: part.arguments[name] for name in ("exact", "settled", "small") if name in part.arguments}
    if asks:
        entry["asks"] = [*asks]
    return keys.visible_log(conversation), entry


def steps_line(conversation: str, ran: Sequence[TraceStep]) -> tuple[str, Json]:
    """Return the log's line for the calls of tools before an answer, in order, without arguments and results."""
    tools: list[Json] = [{"name": step.tool_name, "failed": step.error is not None} for step in ran[:_MOST_STEPS]]
    return keys.visible_log(conversation), {"from": "steps", "tools": tools}


async def rated_line(
    context: EngineContext, conversation: str, feedback: Feedback
) -> tuple[str, tuple[str, Json]] | None:
    """Return the run of a rated message, and the log's line for the rating. None for a message not found in the log."""
    name = keys.visible_log(conversation)
    for entry in reversed(await context.store.read(Key(context.store.partition(conversation), name), last=_LINES_READ)):
        match entry.value:
            case {"from": "bot", "edits": None, "message_id": feedback.message_id, "run": str(run_id)}:
                line: dict[str, Json] = {"from": "rating", "message_id": feedback.message_id, "value": feedback.value}
                return run_id, (name, line)
    return None
