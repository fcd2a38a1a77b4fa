"""The file store: a directory, with each file named by the SHA-256 of its bytes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from channels import AskfirstError, Media, OpenMedia
from channels.cancellable_threads import FILES, in_thread
from gateway.artifacts.emit import Artifact
from gateway.artifacts.links import Holder, Links
from gateway.artifacts.names import clean_filename, sniff_type

PART_SUFFIX: Final = ".part"
UNNAMED_SECONDS: Final = 3000.0
"""The retention of an upload named by no message, and of an unfinished upload after the last piece, in seconds. The
sweep runs every ten minutes, so that both leave within an hour."""


class Uploads:
    """The unfinished files in a directory. Each has a name made by the sender, and grows only at the end."""

    def __init__(self, directory: Path, *, now: Callable[[], datetime]) -> None:
        self._directory, self._now = directory, now

    async def add(self, name: str, piece: bytes, *, at: int) -> int:
        """Add a piece at an offset, and return the number of bytes now present.

        An already present piece adds no bytes, and neither does a piece beginning beyond the end. Raises OSError, also
        for a missing directory.
        """
        return await in_thread(partial(self._add, name, piece, at), threads=FILES)

    async def has(self, name: str) -> bool:
        """Return True if a piece of this file is present. Raises OSError."""
        return await in_thread(self._path(name).exists, threads=FILES)

    async def read(self, name: str) -> bytes | None:
        """Return the bytes of an unfinished file, or None without one. Raises OSError."""
        return await in_thread(partial(self._read, name), threads=FILES)

    async def remove(self, name: str) -> None:
        """Remove an unfinished file. Raises OSError."""
        await in_thread(partial(self._path(name).unlink, missing_ok=True), threads=FILES)

    def _path(self, name: str) -> Path:
        return self._directory / f".{hashlib.sha256(name.encode()).hexdigest()}{PART_SUFFIX}"

    def _add(self, name: str, piece: bytes, at: int) -> int:
        path = self._path(name)
        if at and not path.exists():
            return 0
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # the same piece may come twice at once, to two instances
            return self._appended(file, piece, at)

    def _appended(self, file: BinaryIO, piece: bytes, at: int) -> int:
        size = os.fstat(file.fileno()).st_size
        if at <= size:
            file.write(piece[size - at :])
            file.flush()
            moment = self._now().timestamp()
            os.utime(file.fileno(), (moment, moment))
        return os.fstat(file.fileno()).st_size

    def _read(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None


log = logging.getLogger("askfirst.artifacts")

RETENTION_SECONDS = 30 * 86400.0
"""The default retention of a file, in seconds: as long as settled actions stay readable."""
LINK_SECONDS = 86400.0
"""The lifetime of a link, in seconds: a link given to a platform outlives the delivery by a day."""
_LEAST_SECONDS = 2 * 86400.0
"""The shortest retention, in seconds: a delivery may be retried for a day, and the link lives for another day."""
_ORPHAN_SECONDS = 86400.0
RESERVE_BYTES = 128 * 1024**2
"""The bytes left free on the disk by a new file.

Twice the reserve of the store, for decisions and for the end of running work: the store may be on the same disk.
"""


class NotKept(AskfirstError):
    """The bytes could not be stored.

    The disk is full, the directory cannot be used, or the person's files would exceed ``ASKFIRST_LIMITS``.
    """


class ArtifactStore:
    """A store for the bytes of artifacts, in a directory that instances may share.

    A file's modification time is the start of a retention of RETENTION_SECONDS. A file with a longer or shorter
    retention gets a later or earlier modification time. The access time is the last time at which the file was stored
    or read. So a copy of the directory keeps everything, and no index is needed.
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
        """Make a store in `directory`.

        The first key of `secret` signs links, and all keys verify. `now` is the clock of links and of the sweep. `free`
        returns the free bytes on the disk of a directory.
        """
        self.directory = directory
        self._links = Links(secret, now=now)
        self.public_url = public_url.rstrip("/") if public_url else None
        """None: no file has a link for a chat."""
        self._now = now
        self._free = free

    async def has(self, sha256: str) -> bool:
        """Return True if exactly these bytes are stored already, and not as an upload named by no message."""
        stays = await in_thread(partial(self._stays, sha256), threads=FILES)
        return stays is not None and stays > UNNAMED_SECONDS

    async def is_unnamed(self, sha256: str) -> bool:
        """Return True for the bytes of an upload named by no message. These leave soon."""
        stays = await in_thread(partial(self._stays, sha256), threads=FILES)
        return stays is not None and stays <= UNNAMED_SECONDS

    async def keep(self, artifact: Artifact) -> Media:
        """Store an artifact's bytes. The bytes are durable on return. Storing the same bytes again writes no bytes.

        Raises NotKept, and ValueError for an artifact with only a URL.
        """
        stay = max(artifact.retention_seconds or RETENTION_SECONDS, _LEAST_SECONDS)
        return await in_thread(partial(self._keep, artifact, stay), threads=FILES)

    async def keep_unnamed(self, artifact: Artifact) -> Media:
        """Store an upload not yet named by a message; see `keep`. The bytes leave soon, unless `prolong` is called."""
        return await in_thread(partial(self._keep, artifact, UNNAMED_SECONDS), threads=FILES)

    async def prolong(self, sha256: str) -> None:
        """Give stored bytes at least the default retention from now on. Absent bytes are ignored."""
        await in_thread(partial(self._prolong, self._file(sha256), self._now().timestamp()), threads=FILES)

    def open(self, media: Media, link: str | None = None) -> OpenMedia:
        """Return the file for a channel: the path, and the link if there is one."""
        return OpenMedia(**asdict(media), path=self._file(media.sha256), link=link)

    def path(self, media: Media, holder: Holder, *, lives_seconds: float) -> str:
        """Return a link to this file relative to the mount point of the gateway: ``artifacts/{token}``."""
        return f"artifacts/{self.sign(media, holder, lives_seconds=lives_seconds)}"

    def sign(self, media: Media, holder: Holder, *, lives_seconds: float) -> str:
        """Return the token of a link to this file."""
        return self._links.sign(media, holder, lives_seconds=lives_seconds)

    def resolve(self, token: str) -> tuple[Path, Media, Holder]:
        """Return the file and the holder of a link's token. The file itself may be deleted already. Raises BadLink."""
        media, holder = self._links.read(token)
        return self._file(media.sha256), media, holder

    async def make_room(self, size: int) -> None:
        """Make room for the pieces of a file of this many bytes. Raises NotKept when the room is not enough."""
        await in_thread(partial(self._make_room_for_pieces, size), threads=FILES)

    async def sweep(self, now: datetime) -> int:
        """Delete the files with an expired retention, and return their number. Any instance may call this."""
        return await in_thread(partial(self._sweep, now.timestamp()), threads=FILES)

    async def names(self) -> frozenset[str]:
        """Return the hashes of the kept files."""

        def listed() -> frozenset[str]:
            return frozenset(path.name for path in self._kept()) if self.directory.is_dir() else frozenset()

        return await in_thread(listed, threads=FILES)

    async def discard(self, hashes: Collection[str]) -> int:
        """Delete the files with these hashes, and return the number of deleted files."""

        def deleted() -> int:
            there = [path for path in map(self._file, hashes) if path.exists()]
            for path in there:
                path.unlink(missing_ok=True)
            return len(there)

        return await in_thread(deleted, threads=FILES)

    def _file(self, sha256: str) -> Path:
        return self.directory / sha256

    def _stays(self, sha256: str) -> float | None:
        """Return the rest of the retention of stored bytes in seconds, or None for absent bytes."""
        try:
            return self._file(sha256).stat().st_mtime + RETENTION_SECONDS - self._now().timestamp()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _keep(self, artifact: Artifact, stay: float) -> Media:
        content = artifact.content
        if content is None or artifact.sha256 is None:
            raise ValueError("this artifact has only a URL, there are no bytes to keep")
        path = self._file(artifact.sha256)
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

    def _make_room_for_pieces(self, size: int) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(size)
        except OSError as error:
            raise NotKept(f"a file could not be kept in {self.directory}: {error.strerror}") from error

    def _make_room(self, size: int) -> None:
        """Delete the oldest files until a new file leaves the reserve free.

        A file still needed by a possible delivery is not deleted. Raises NotKept when the room is not enough.
        """
        needed = RESERVE_BYTES + size
        if self._free(self.directory) >= needed:
            return
        last = self._now().timestamp() - _LEAST_SECONDS
        removed = 0
        for path in self._oldest_first(last):
            with contextlib.suppress(FileNotFoundError):  # another instance deleted it first
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

    def _oldest_first(self, last: float) -> list[Path]:
        """Return the files with a last use until `last`, the oldest first."""
        used: list[tuple[float, Path]] = []
        for path in self._kept():
            with contextlib.suppress(FileNotFoundError):
                used.append((path.stat().st_atime, path))
        return [path for at, path in sorted(used) if at <= last]

    def _kept(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if not path.name.startswith(".")]

    def _prolong(self, path: Path, dated: float) -> bool:
        """Extend the retention of an existing file; return False for a missing file."""
        try:
            dated = max(dated, path.stat().st_mtime)
            os.utime(path, (self._now().timestamp(), dated))
        except FileNotFoundError:
            return False
        return True

    def _write(self, path: Path, content: bytes, dated: float) -> None:
        """Write a file atomically and durably: to a temporary file, flushed to disk, then renamed."""
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
        with contextlib.suppress(FileNotFoundError):  # no file was stored yet, or another instance deleted it first
            for path in sorted(self.directory.iterdir()):
                with contextlib.suppress(FileNotFoundError):
                    if path.name.startswith("."):
                        ended = UNNAMED_SECONDS if path.suffix == PART_SUFFIX else _ORPHAN_SECONDS + RETENTION_SECONDS
                        if path.stat().st_mtime < now - ended:
                            path.unlink()
                    elif path.stat().st_mtime < now - RETENTION_SECONDS:
                        swept += self._remove(path, lambda file: file.st_mtime < now - RETENTION_SECONDS)
        return swept

    def _remove(self, path: Path, is_over: Callable[[os.stat_result], bool]) -> bool:
        """Delete a file, unless stored again since the dates were read. Return True after a deletion.

        The file is renamed before the dates are checked again: an instance storing the same bytes from then on writes a
        new file.
        """
        aside = path.with_name(f".{path.name}.old")
        path.rename(aside)
        if is_over(aside.stat()):
            aside.unlink()
            return True
        if path.exists():  # another instance has stored the same bytes again meanwhile
            aside.unlink()
        else:
            aside.rename(path)
        return False
