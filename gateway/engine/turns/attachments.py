"""The files of a turn's messages: fetched from the platform within bounds, inspected, and kept by hash.

A turn taken over by another worker fetches the files again. The same bytes are the same file.
"""

from __future__ import annotations

import asyncio
import logging
import mimetypes
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from channels import Attachment, CanFetch, Media, Message, Person, RateLimited, SendError, Unavailable
from gateway.agent.replies import SHOWN_TYPES
from gateway.artifacts import Artifact, NotKept, clean_filename
from gateway.artifacts.names import sniff_type
from gateway.artifacts.pictures import HEAD_BYTES, picture_size, picture_type
from gateway.bot.turn import Turn
from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import RunningTurn, TurnFeature
from gateway.logs import describe_error
from gateway.tools.context import ReceivedAttachment

log = logging.getLogger("askfirst.turns")

LARGEST_BYTES: Final = 20_000_000
"""The size of the largest fetched file. Telegram gives no larger file: https://core.telegram.org/bots/api#getfile."""
MOST_FILES: Final = 10
"""The most files fetched in a turn. An album has as many."""
MOST_SECONDS: Final = 30.0
"""The longest time for all files of a turn."""
_MOST_PIXELS: Final = 50_000_000
_LONGEST_SIDE: Final = 20_000
"""A larger picture is kept as a document: showing the picture could take gigabytes of memory."""
_AGAIN_SECONDS: Final = (0.5, 2.0)
_BYTES: Final = "application/octet-stream"
_HEARD_SECONDS: Final = 25.0
"""The longest wait for the words of a voice message, beside the time for the files."""
_LONGEST_TRANSCRIPT: Final = 10_000
_NO_BYTES: Final = frozenset({"location", "contact"})


class Attachments(TurnFeature):
    """Fetches the files of the messages for the model."""

    async def before(self, turn: RunningTurn, asked: Turn) -> None:
        if not self.context.bot.commands.are_meant(asked):
            received = await fetch_attachments(self.context, asked.messages)
            if received:
                asked.context = replace(asked.context, attachments=received)


async def fetch_attachments(context: EngineContext, messages: Sequence[Message]) -> tuple[ReceivedAttachment, ...]:
    """Return the attachments of these messages in order. An unreadable file has a `fault`."""
    listed = [(message, attachment) for message in messages for attachment in message.attachments]
    if not listed:
        return ()
    received: list[ReceivedAttachment] = []
    deadline = asyncio.get_running_loop().time() + MOST_SECONDS
    fetched = 0
    for message, attachment in listed:
        channel = context.channels.get(message.address.channel)
        if attachment.kind in _NO_BYTES or not isinstance(channel, CanFetch):
            received.append(_as_received(attachment, fault=""))
            continue
        if fetched == MOST_FILES:
            received.append(_as_received(attachment, fault=f"only {MOST_FILES} files are read at a time"))
            continue
        fetched += 1
        try:
            async with asyncio.timeout_at(deadline):
                found = await _fetch(context, channel, attachment, message.person)
        except TimeoutError:
            found = _as_received(attachment, fault="it took too long")
        if attachment.kind == "voice" and found.media is not None:
            found = await _transcribe(context, found, found.media, message.person)
        received.append(found)
    received = [_mark_untranscribed(each) for each in received]
    for each in received:
        if each.fault:
            log.info("a file (%s) of a message was not read: %s", each.kind, each.fault)
    return tuple(received)


async def _fetch(
    context: EngineContext, channel: CanFetch, attachment: Attachment, person: Person | None
) -> ReceivedAttachment:
    if attachment.size is not None and attachment.size > LARGEST_BYTES:
        return _as_received(attachment, fault=_too_large())
    content = None
    for pause in (*_AGAIN_SECONDS, None):
        try:
            content = await _read(channel.fetch(attachment))
            break
        except (Unavailable, RateLimited) as error:
            if pause is None:
                return _as_received(attachment, fault=f"the platform did not give it ({error.code})")
            await asyncio.sleep(pause)
        except SendError as error:
            return _as_received(attachment, fault=f"the platform did not give it ({error.code})")
        except Exception as error:  # noqa: BLE001 - a channel that breaks must not end the turn
            return _as_received(attachment, fault=f"the channel raised {type(error).__name__}")
    if content is None:
        return _as_received(attachment, fault=_too_large())
    if not content:
        return _as_received(attachment, fault="it is empty")
    return await _keep(context, attachment, content, person)


async def _read(pieces: AsyncIterator[bytes]) -> bytes | None:
    """Return the bytes of a file; None for a file above `LARGEST_BYTES`."""
    content = bytearray()
    async with aclosing(pieces) as stream:  # type: ignore[type-var]
        async for piece in stream:
            content += piece
            if len(content) > LARGEST_BYTES:
                return None
    return bytes(content)


async def _keep(
    context: EngineContext, attachment: Attachment, content: bytes, person: Person | None
) -> ReceivedAttachment:
    mime_type = await asyncio.to_thread(_type, content, attachment)
    size, fault = picture_size(content[:HEAD_BYTES]), ""
    if size is not None and (max(size) > _LONGEST_SIDE or size[0] * size[1] > _MOST_PIXELS):
        mime_type, fault = _BYTES, f"a picture of {size[0]} by {size[1]} pixels is too large"
    elif mime_type not in SHOWN_TYPES and (said := _shown_type(attachment)):
        fault = f"it is of another kind than its name says: no {said}"
    artifact = await asyncio.to_thread(Artifact.of, content, _filename(attachment, mime_type), mime_type)
    try:
        media = await context.files.keep_sent(artifact, str(person))
    except NotKept:
        return _as_received(attachment, fault="no more files are kept for this person now")
    return replace(
        _as_received(attachment, fault=fault),
        mime_type=media.mime_type,
        filename=media.filename,
        size=media.size,
        path=context.artifacts.open(media).path,
        media=media,
    )


async def _transcribe(
    context: EngineContext, received: ReceivedAttachment, media: Media, person: Person | None
) -> ReceivedAttachment:
    """Return a voice message with a transcript, or with a fault if transcribing fails. Unchanged without a
    transcriber."""
    transcriber = context.bot.transcriber or context.transcriber
    if transcriber is None or (content := await context.files.read(media)) is None:
        return received
    try:
        async with asyncio.timeout(_HEARD_SECONDS):
            text = await transcriber.transcribe(
                content,
                filename=media.filename,
                mime_type=media.mime_type,
                language=person.language if person is not None else None,
            )
    except Exception as error:  # noqa: BLE001 - an author's transcriber may raise anything
        log.warning("a voice message was not transcribed: %s", describe_error(error))
        return replace(received, fault="it could not be transcribed")
    return replace(received, transcript=text[:_LONGEST_TRANSCRIPT])


def _mark_untranscribed(received: ReceivedAttachment) -> ReceivedAttachment:
    """Return the attachment, with a fault for a voice message without words."""
    if received.kind != "voice" or received.fault or (received.transcript or "").strip():
        return received
    why = "there is nothing here that writes it down" if received.transcript is None else "no words are in it"
    return replace(received, transcript=None, fault=why)


def _shown_type(attachment: Attachment) -> str | None:
    """Return the picture or PDF type declared by the name or the platform, or None."""
    named, _ = mimetypes.guess_type(attachment.filename or "")
    return next((each for each in (named, _declared(attachment)) if each in SHOWN_TYPES), None)


def _declared(attachment: Attachment) -> str:
    return (attachment.mime_type or "").partition(";")[0].strip().lower()


def _type(content: bytes, attachment: Attachment) -> str:
    """Return the type of the bytes. Only the bytes make a picture or a PDF, never a name or header."""
    if (picture := picture_type(content[:HEAD_BYTES])) is not None:
        return picture
    found = sniff_type(content, None)
    declared = _declared(attachment)
    is_vague = found in (_BYTES, "text/plain") and "/" in declared and not declared.startswith("image/")
    return declared if is_vague and declared not in SHOWN_TYPES else found


def _filename(attachment: Attachment, mime_type: str) -> str:
    """Return a clean name. A picture's ending is replaced if the bytes have another known type."""
    name = PurePosixPath(clean_filename(attachment.filename or attachment.kind, mime_type))
    named, _ = mimetypes.guess_type(name.name)
    if mime_type == _BYTES or named == mime_type or not (named or "").startswith("image/"):
        return name.name
    return f"{name.stem}{mimetypes.guess_extension(mime_type) or ''}"


def _as_received(attachment: Attachment, *, fault: str) -> ReceivedAttachment:
    return ReceivedAttachment(
        kind=attachment.kind,
        ref=attachment.ref,
        mime_type=attachment.mime_type,
        filename=attachment.filename,
        size=attachment.size,
        fault=fault,
    )


def _too_large() -> str:
    return f"it is larger than {LARGEST_BYTES // 10**6} MB"
