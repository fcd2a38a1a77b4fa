"""Where files live: one directory, each file named by the SHA-256 of its bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path

from channels import AskfirstError, Media, OpenMedia
from channels.cancellable_threads import FILES, in_thread
from gateway.artifacts.emit import Artifact
from gateway.artifacts.links import Holder, Links
from gateway.artifacts.names import clean_filename, sniff_type

__all__ = ["LINK_SECONDS", "RETENTION_SECONDS", "ArtifactStore", "NotKept"]

log = logging.getLogger("askfirst.artifacts")

RETENTION_SECONDS = 30 * 86400.0
"""As long as settled actions stay readable."""
LINK_SECONDS = 86400.0
"""How long a link lives: one given to a platform outlives the delivery by a day."""
_LEAST_SECONDS = 2 * 86400.0
"""A delivery may be retried for a day, and its link then lives for another."""
_ORPHAN_SECONDS = 86400.0
RESERVE_BYTES = 128 * 1024**2
"""What a file leaves free on its disk: twice what decisions and ends of work keep for themselves, which may lie on the
same one."""


class NotKept(AskfirstError):
    """The bytes could not be written: the disk is full, the directory cannot be used, or somebody keeps too much."""


class ArtifactStore:
    """Keeps the bytes of artifacts and opens them again, in a directory that instances may share.

    A file's modification time says when its stay of RETENTION_SECONDS began; a file with a longer or shorter stay is
    dated later or earlier. Its access time says when it was kept last, or read since. So a copy of the directory keeps
    everything, and no index is needed.
    """

    def __init__(
        self,
        directory: Path,
        secret: Sequence[bytes],
        *,
        public_url: str | None,
        now: Callable[[], datetime],
        free: Callable[[Path], int] = lambda directory: shutil.disk_usage(directory).free,
    ) -> None:
        """`secret`: the first key signs links, all of them verify. `now`: the clock of links and of the sweep. `free`:
        the bytes that are free on the disk of a directory."""
        self.directory = directory
        self._links = Links(secret, now=now)
        self._public_url = public_url.rstrip("/") if public_url else None
        self._now = now
        self._free = free

    async def has(self, artifact: Artifact) -> bool:
        """Return True when these very bytes are kept already."""
        return artifact.sha256 is not None and await in_thread(self._file(artifact.sha256).exists, threads=FILES)

    async def keep(self, artifact: Artifact) -> Media:
        """Write an artifact's bytes; durable when it returns. Keeping the same bytes again writes nothing.

        Raises NotKept, and ValueError for an artifact that has only a URL.
        """
        return await in_thread(partial(self._keep, artifact), threads=FILES)

    def open(self, media: Media, holder: Holder | None = None) -> OpenMedia:
        """The file as a channel sends it: where it is, and the holder's fresh link when there is a public URL."""
        link = self.link(media, holder, lives_seconds=LINK_SECONDS) if self._public_url and holder else None
        return OpenMedia(**asdict(media), path=self._file(media.sha256), link=link)

    def link(self, media: Media, holder: Holder, *, lives_seconds: float) -> str:
        """A URL that serves this file for so long; without a public URL, one relative to the server's root."""
        return f"{self._public_url or ''}/{self.path(media, holder, lives_seconds=lives_seconds)}"

    def path(self, media: Media, holder: Holder, *, lives_seconds: float) -> str:
        """The same link relative to where the gateway is mounted: ``artifacts/{token}``."""
        return f"artifacts/{self._links.sign(media, holder, lives_seconds=lives_seconds)}"

    def resolve(self, token: str) -> tuple[Path, Media, Holder]:
        """What a link's token stands for, and whose it is; the file itself may be gone by now. Raises BadLink."""
        media, holder = self._links.read(token)
        return self._file(media.sha256), media, holder

    async def sweep(self, now: datetime) -> int:
        """Delete the files whose time has passed by then, and how many those were. Any instance may do it."""
        return await in_thread(partial(self._sweep, now.timestamp()), threads=FILES)

    def _file(self, sha256: str) -> Path:
        return self.directory / sha256

    def _keep(self, artifact: Artifact) -> Media:
        content = artifact.content
        if content is None or artifact.sha256 is None:
            raise ValueError("this artifact has only a URL, there are no bytes to keep")
        path = self._file(artifact.sha256)
        stay = max(artifact.retention_seconds or RETENTION_SECONDS, _LEAST_SECONDS)
        dated = self._now().timestamp() + stay - RETENTION_SECONDS
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._prolong(path, dated):
                self._make_room(len(content))
                self._write(path, content, dated)
        except OSError as error:
            raise NotKept(f"a file could not be kept in {self.directory}: {error.strerror}") from error
        mime_type = artifact.mime_type or sniff_type(content, artifact.filename)
        return Media(
            sha256=artifact.sha256,
            mime_type=mime_type,
            filename=clean_filename(artifact.filename, mime_type),
            size=len(content),
            role=artifact.role,
        )

    def _make_room(self, size: int) -> None:
        """Delete the oldest files until this one leaves the reserve free; no file that a delivery may still need.

        Raises NotKept when that does not make enough room.
        """
        needed = RESERVE_BYTES + size
        if self._free(self.directory) >= needed:
            return
        last = self._now().timestamp() - _LEAST_SECONDS
        removed = 0
        for path in sorted(self._kept(), key=lambda path: path.stat().st_atime):
            if path.stat().st_atime > last:
                break
            removed += self._remove(path, lambda file: file.st_atime <= last)
            if self._free(self.directory) >= needed:
                break
        if removed:
            log.warning("the disk of %s is nearly full: %d old files were removed", self.directory, removed)
        if self._free(self.directory) < needed:
            raise NotKept(
                f"a file of {size} bytes was not kept in {self.directory}: less than "
                f"{RESERVE_BYTES // 1024**2} MiB would be free; make room"
            )

    def _kept(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if not path.name.startswith(".")]

    def _prolong(self, path: Path, dated: float) -> bool:
        """Give a file that is there already its longer stay; False when it is not there."""
        try:
            dated = max(dated, path.stat().st_mtime)
            os.utime(path, (self._now().timestamp(), dated))
        except FileNotFoundError:
            return False
        return True

    def _write(self, path: Path, content: bytes, dated: float) -> None:
        """Whole and durable, or not at all: written aside, forced to disk, then named."""
        with tempfile.NamedTemporaryFile(prefix=".", suffix=".new", dir=self.directory, delete=False) as file:
            aside = Path(file.name)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.utime(aside, (self._now().timestamp(), dated))
                aside.replace(path)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _sweep(self, now: float) -> int:
        swept = 0
        with contextlib.suppress(FileNotFoundError):  # nothing was ever kept, or another instance was faster
            for path in sorted(self.directory.iterdir()):
                with contextlib.suppress(FileNotFoundError):
                    if path.name.startswith("."):
                        if path.stat().st_mtime < now - _ORPHAN_SECONDS - RETENTION_SECONDS:
                            path.unlink()
                    elif path.stat().st_mtime < now - RETENTION_SECONDS:
                        swept += self._remove(path, lambda file: file.st_mtime < now - RETENTION_SECONDS)
        return swept

    def _remove(self, path: Path, is_over: Callable[[os.stat_result], bool]) -> bool:
        """Delete a file, unless it was kept again since its dates were read.

        It is moved aside before it is looked at again: whoever keeps the same bytes from then on writes them anew.
        """
        aside = path.with_name(f".{path.name}.old")
        path.rename(aside)
        if is_over(aside.stat()):
            aside.unlink()
            return True
        aside.rename(path)
        return False
