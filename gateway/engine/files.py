"""Files of tools: kept within the limits of their person and of all together."""

from __future__ import annotations

import logging
from functools import partial

from channels import Media
from channels.cancellable_threads import FILES, in_thread
from gateway.artifacts import RETENTION_SECONDS, Artifact, ArtifactStore, NotKept
from gateway.engine.reply_limits import once_a_minute
from gateway.limits import Share
from gateway.pending.actions import ConversationActions
from gateway.pending.prompting import write_files
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Cell
from gateway.stored import keys

log = logging.getLogger("askfirst.engine")


class FileKeeper:
    """Keeps files. `share`: MiB that one person and all together may keep."""

    def __init__(self, artifacts: ArtifactStore, store: Store, share: Share) -> None:
        self._artifacts, self._store, self._share = artifacts, store, share

    async def keep(self, artifact: Artifact, person: str) -> Media:
        """Keep a file that a tool made for a person.

        A file counts for as long as files stay, a little less each moment. Raises NotKept above the limits.
        """
        if artifact.content is not None and not await self._artifacts.has(artifact):
            await self.charge(person, len(artifact.content))
        await self._note(artifact, person)
        return await self._artifacts.keep(artifact)

    async def charge(self, person: str, size: int) -> None:
        """Count a new file of this many bytes for a person. Raises NotKept above the limits."""
        share, mebibytes = self._share, size / 1024**2
        named = ((f"person/{person}", share.person), ("all", share.all))
        limits = [(name, most) for name, most in named if most is not None]
        full = [name for name, most in limits if mebibytes > most]
        cells = [
            Cell(name=f"files/{name}", burst=most, period_seconds=RETENTION_SECONDS, cost=mebibytes)
            for name, most in limits
            if not full
        ]
        if full or (cells and await self._store.acquire(cells)):
            if not await self._store.acquire([once_a_minute(f"files told/{person}")]):
                log.warning("%s keeps as many MiB of files as ASKFIRST_LIMITS allows (%s)", person, share)
            raise NotKept(f"ASKFIRST_LIMITS allows files={share} MiB")

    async def _note(self, artifact: Artifact, person: str) -> None:
        """Note for whom a file is kept: forgetting them deletes it."""
        if artifact.sha256 is not None:
            key = keys.key(self._store, person, keys.kept_file, artifact.sha256)
            put = Put(True, max(artifact.retention_seconds or 0.0, RETENTION_SECONDS))
            await self._store.commit(Transaction(partition=key.partition, puts={key.name: put}))

    async def read(self, media: Media) -> bytes | None:
        """Return the bytes of a kept file; None if it is gone."""
        try:
            return await in_thread(self._artifacts.open(media).path.read_bytes, threads=FILES)
        except OSError:
            return None

    async def keep_for_questions(self, actions: ConversationActions) -> None:
        """Keep the files of the questions that are asked, before the commit that queues the questions.

        Raises NotKept for the file of a new question. The file of an older question was kept when it was asked, so its
        decision goes on.
        """
        if actions.filed:
            await in_thread(partial(write_files, actions), threads=FILES)
        for action_id, file in actions.files.items():
            action = actions.get(action_id)
            try:
                if action is not None:
                    await self._note(file, action.requester)
                await self._artifacts.keep(file)
            except NotKept as error:
                if action is None or not action.prompts:
                    raise
                log.error("the file of the question %s was not kept again: %s", action_id, error)
