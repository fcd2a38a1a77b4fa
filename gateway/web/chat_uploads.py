"""Files of the chat page. Each piece of a file is a request, and a whole file gets a token for a message.

Pieces are no larger than any other request: they pass every proxy, hold little memory, and show the progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from aiohttp import hdrs, web
from pydantic import ValidationError

from channels import Forged, Json, Media, Message, Parsed, Stale, WebhookRequest
from channels.webchat import Session, WebChatChannel
from channels.webchat.parse import split_ref
from channels.webchat.payload import MAX_FILE_BYTES, Piece, piece_from
from gateway.artifacts import (
    RETENTION_SECONDS,
    Artifact,
    ArtifactStore,
    BadLink,
    NotKept,
    OfSession,
    Uploads,
)
from gateway.store.errors import StoreUnavailable

log = logging.getLogger("askfirst.web")

Charge: TypeAlias = Callable[[str, int], Awaitable[None]]
"""(person, bytes): count an upload of a person. Raises NotKept above the limits, and StoreUnavailable."""
KeepUpload: TypeAlias = Callable[[Media, str], Awaitable[None]]
"""(file, person): keep an upload named by a message. Raises NotKept above the limits, and StoreUnavailable."""

_LEAST_CHARGE: Final = 2**16
"""Least number of bytes counted for a file. The number of tiny files is thereby limited too."""
_AT_ONCE: Final = 2
"""Whole files held in memory by a process at a time, for hashing and storing."""


class ChatUploads:
    """The endpoint of the pieces."""

    def __init__(
        self, *, channel: WebChatChannel, artifacts: ArtifactStore, charge: Charge, now: Callable[[], datetime]
    ) -> None:
        self._channel, self._artifacts, self._charge, self._now = channel, artifacts, charge, now
        self._uploads = Uploads(artifacts.directory, now=now)
        self._whole = asyncio.Semaphore(_AT_ONCE)

    async def take(self, called: WebhookRequest, query: Mapping[str, str], body: bytes) -> web.Response:
        """Take a piece, and answer with the number of bytes received: ``{"at": ...}``, at the end with the file.

        Answers 409 when an earlier piece is missing, 413 for a file above the limit, and 507 when no more files are
        kept for the person.
        """
        try:
            session = self._channel.verify_upload(called, self._now())
        except (Forged, Stale):
            return web.Response(status=401, text="no session: open the chat page again")
        try:
            piece = piece_from(query)
        except ValidationError:
            return web.Response(status=400, text="not a piece of a file")
        if piece.size > MAX_FILE_BYTES:
            return web.Response(status=413, text=f"a file has at most {MAX_FILE_BYTES} bytes")
        if not body or piece.at + len(body) > piece.size:
            return web.Response(status=400, text="the piece does not fit into the file")
        try:
            return await self._taken(session, piece, body)
        except StoreUnavailable:
            return web.Response(status=503, text="not kept, please send it again", headers={hdrs.RETRY_AFTER: "5"})
        except NotKept as error:
            log.warning("a file of the chat page was not kept: %s", error)
        except OSError as error:
            log.error("a file of the chat page was not kept in %s: %s", self._artifacts.directory, error.strerror)
        return web.Response(status=507, text="no more files are kept now")

    async def _taken(self, session: Session, piece: Piece, body: bytes) -> web.Response:
        # The size is a part of the name: it was counted with the first piece, and no later one may change it.
        name = f"{session.holder}:{piece.upload}:{piece.size}"
        if piece.at == 0 and not await self._uploads.has(name):
            await self._charge(str(session.person), max(piece.size, _LEAST_CHARGE))
            await self._artifacts.make_room(piece.size)
        there = await self._uploads.add(name, body, at=piece.at)
        if there < piece.size:
            return _answer(200 if there > piece.at else 409, {"at": there})
        async with self._whole:
            media = await self._kept(name, piece.name)
        if media is None:
            return _answer(409, {"at": 0})
        token = self._artifacts.sign(media, OfSession(session.holder), lives_seconds=RETENTION_SECONDS)
        file: Json = {"token": token, "filename": media.filename, "mime_type": media.mime_type, "size": media.size}
        return _answer(200, {"at": there, "file": file})

    async def _kept(self, name: str, filename: str) -> Media | None:
        """Move a whole file to the kept ones. None when another request has done so."""
        content = await self._uploads.read(name)
        if content is None:
            return None
        media = await self._artifacts.keep_unnamed(await asyncio.to_thread(Artifact.of, content, filename))
        await self._uploads.remove(name)
        return media


def uploaded(artifacts: ArtifactStore, holder: str, token: str) -> Path | None:
    """Return the path of the file uploaded by a holder under this token, or None for any other token."""
    found = _found(artifacts, holder, token)
    return found[0] if found is not None else None


async def keep_named(artifacts: ArtifactStore, keep: KeepUpload, parsed: Parsed) -> None:
    """Keep the uploads named by messages. Uploads above the limits are left out, and the turn notifies the author."""
    for event in parsed.events:
        if not isinstance(event, Message):
            continue
        for attachment in event.attachments:
            found = _found(artifacts, *split_ref(attachment.ref))
            if found is not None:
                with contextlib.suppress(NotKept):
                    await keep(found[1], str(event.person))


def _found(artifacts: ArtifactStore, holder: str, token: str) -> tuple[Path, Media] | None:
    try:
        path, media, found = artifacts.resolve(token)
    except BadLink:
        return None
    return (path, media) if found == OfSession(holder) else None


def _answer(status: int, body: Json) -> web.Response:
    return web.json_response(body, status=status, headers={hdrs.CACHE_CONTROL: "no-store"})
