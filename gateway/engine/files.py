"""Files of tools and of people, kept within the limits of a person and of all people together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from channels import Media
from channels.cancellable_threads import FILES, in_thread
from gateway.access.reached import ReachedLimits
from gateway.artifacts import RETENTION_SECONDS, Artifact, ArtifactStore, NotKept
from gateway.config.limits import ONE_PLACE, Share
from gateway.engine.reply_limits import once_a_minute
from gateway.pending.actions import ConversationActions
from gateway.pending.prompting import write_files
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Cell
from gateway.stored import keys

log = logging.getLogger("askfirst.engine")


class _Room(NamedTuple):
    """A room for kept files, with separate limits."""

    name: str
    """The name in the report of a reached limit."""
    cell: str
    seconds: float = RETENTION_SECONDS
    """The time in which a full limit becomes free again."""


_OF_TOOLS: Final = _Room("files of tools", "files")
_OF_PEOPLE: Final = _Room("files of people", "files sent")
_UPLOADS: Final = _Room("uploads that no message names", "uploads", 3600.0)
_NEVER: Final = (Cell(name="never", burst=1, period_seconds=1e-6),) * 2
"""Two cells with a sum above the burst: a request with both is always refused."""


class FileKeeper:
    """Keeps files in three rooms with separate limits: files of tools, files sent by people, and unnamed uploads.

    An upload is unnamed until a message names the upload.

    `share`: MiB for a person, for the web chat as a whole, and for all together, in each room.
    """

    def __init__(self, artifacts: ArtifactStore, store: Store, share: Share, reached: ReachedLimits) -> None:
        self._artifacts, self._store, self._share, self._reached = artifacts, store, share, reached
        self._keeping: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Hash -> the lock for counting a sent file, so the file is counted once."""

    async def keep(self, artifact: Artifact, person: str) -> Media:
        """Keep a file made by a tool for a person.

        The counted size shrinks steadily over the lifetime of files. Raises NotKept above the limits.
        """
        return await self._keep(_OF_TOOLS, artifact, person)

    async def keep_sent(self, artifact: Artifact, person: str) -> Media:
        """Keep a file sent by a person. Raises NotKept above the limits."""
        async with self._lock(artifact.sha256 or ""):
            return await self._keep(_OF_PEOPLE, artifact, person)

    async def charge_upload(self, person: str, size: int) -> None:
        """Count an upload of this many bytes, less and less over an hour. Raises NotKept above the limits."""
        await self._charge(_UPLOADS, person, size)

    async def keep_upload(self, media: Media, person: str) -> None:
        """Keep an upload named by a message of the person. Raises NotKept above the limits."""
        async with self._lock(media.sha256):  # the turn of the message may keep it at the same time
            if await self._artifacts.is_unnamed(media.sha256):
                await self._charge(_OF_PEOPLE, person, media.size)
                await self._note(media.sha256, person, RETENTION_SECONDS)
                await self._artifacts.prolong(media.sha256)

    def _lock(self, sha256: str) -> asyncio.Lock:
        return self._keeping.setdefault(sha256, asyncio.Lock())

    async def _keep(self, room: _Room, artifact: Artifact, person: str) -> Media:
        sha256, content = artifact.sha256, artifact.content
        if sha256 is not None and content is not None and not await self._artifacts.has(sha256):
            await self._charge(room, person, len(content))
        if sha256 is not None:
            await self._note(sha256, person, max(artifact.retention_seconds or 0.0, RETENTION_SECONDS))
        return await self._artifacts.keep(artifact)

    async def _charge(self, room: _Room, person: str, size: int) -> None:
        """Count a new file of this many bytes for a person. Raises NotKept above the limits."""
        share, mebibytes = self._share, size / 1024**2
        is_visitor = room is not _OF_TOOLS and person.startswith(f"{ONE_PLACE}:")
        named = [(f"person/{person}", share.person), ("all", share.all)]
        named += [(f"place/{ONE_PLACE}", share.place)] if is_visitor else []
        limits = [(name, most) for name, most in named if most is not None]
        full = [name for name, most in limits if mebibytes > most]
        cells = [
            Cell(name=f"{room.cell}/{name}", burst=most, period_seconds=room.seconds, cost=mebibytes)
            for name, most in limits
            if not full
        ]
        if full or (cells and await self._store.acquire(cells)):
            if not await self._store.acquire([once_a_minute(f"files told/{person}")]):
                log.warning("%s keeps as many MiB of files as ASKFIRST_LIMITS allows (%s)", person, share)
            if await self._is_full([cell for cell in cells if not cell.name.endswith(f"person/{person}")]):
                self._reached.note(room.name, f"files={share}")
            raise NotKept(f"ASKFIRST_LIMITS allows files={share} MiB")

    async def _is_full(self, shared: Sequence[Cell]) -> bool:
        """Return True if the shared limits have no room for the costs. Takes no amount."""
        return bool(shared) and await self._store.acquire([*shared, *_NEVER]) > _NEVER[0].period_seconds

    async def _note(self, sha256: str, person: str, seconds: float) -> None:
        """Note the person of a kept file. Forgetting the person deletes the file."""
        key = keys.key(self._store, person, keys.kept_file, sha256)
        await self._store.commit(Transaction(partition=key.partition, puts={key.name: Put(True, seconds)}))

    async def read(self, media: Media) -> bytes | None:
        """Return the bytes of a kept file; None if the file is gone."""
        try:
            return await in_thread(self._artifacts.open(media).path.read_bytes, threads=FILES)
        except OSError:
            return None

    async def keep_for_questions(self, actions: ConversationActions) -> None:
        """Keep the files of asked questions, before the commit queueing the questions.

        Raises NotKept for the file of a new question. The file of an older question was kept at the time of asking, so
        the decision goes on.
        """
        if actions.filed:
            await in_thread(partial(write_files, actions), threads=FILES)
        for action_id, file in actions.files.items():
            action = actions.get(action_id)
            try:
                if action is not None and file.sha256 is not None:
                    stays = max(file.retention_seconds or 0.0, RETENTION_SECONDS)
                    await self._note(file.sha256, action.requester, stays)
                await self._artifacts.keep(file)
            except NotKept as error:
                if action is None or not action.prompts:
                    raise
                log.error("the file of the question %s was not kept again: %s", action_id, error)
