"""The output of files by tools: each emitted file belongs to the run of its tool."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from channels import AskfirstError, Media

MAX_BYTES = 25 * 1024 * 1024
"""The largest file for a tool to emit, in bytes."""
MAX_PER_RUN = 10
"""The most files emitted by one run of a tool."""

_MIME_TYPE = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}(; ?charset=[a-z0-9-]{1,40})?"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class OutsideRun(AskfirstError):
    """`emit_artifact` was called outside a run of a tool, or after the run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file made by a tool: the bytes, or the URL."""

    url: str | None = None
    sha256: str | None = None
    """64 hex digits; always present with `content`."""
    size: int | None = None
    """Bytes; always present with `content`."""
    mime_type: str | None = None
    filename: str | None = None
    role: str | None = None
    """The role of the file in the answer, for example ``primary`` or ``preview``."""
    retention_seconds: float | None = None
    """The retention of the bytes, in seconds; None: the store's default."""
    content: bytes | None = field(default=None, repr=False, compare=False)
    """The bytes, until the file is stored; None for a file with only a URL."""

    @classmethod
    def of(cls, content: bytes, filename: str, mime_type: str | None = None) -> Self:
        """Return the file with these bytes, of any size. Hashes the bytes: call in a thread for a large file."""
        digest = hashlib.sha256(content).hexdigest()
        return cls(sha256=digest, size=len(content), mime_type=mime_type, filename=filename, content=content)


def media_of(artifact: Artifact) -> Media:
    """Return a kept file as a reply's media."""
    return Media(
        sha256=artifact.sha256 or "",
        mime_type=artifact.mime_type or "application/octet-stream",
        filename=artifact.filename or "file",
        size=artifact.size or 0,
        role=artifact.role,
    )


class _Collector:
    """The files of a run. Accepts files while the run lasts."""

    def __init__(self) -> None:
        self.artifacts: list[Artifact] = []
        self.open = True


_current: ContextVar[_Collector | None] = ContextVar("askfirst_artifacts", default=None)


@contextmanager
def collecting() -> Iterator[list[Artifact]]:
    """Collect the files emitted inside the block, in order, in the yielded list.

    Concurrent runs do not see each other's files. A thread with a copy of the run's context (as with
    `asyncio.to_thread`) emits into the run. Emitting raises OutsideRun after the end of the block.
    """
    collector = _Collector()
    token = _current.set(collector)
    try:
        yield collector.artifacts
    finally:
        collector.open = False
        _current.reset(token)


def emit_artifact(
    url: str | None = None,
    *,
    content: bytes | None = None,
    path: str | Path | None = None,
    mime_type: str | None = None,
    filename: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    role: str | None = None,
    retention_seconds: float | None = None,
) -> Artifact:
    """Send a file to the person of this run. Give exactly one of `url`, `content` and `path`.

    A `path` is read at once, so a temporary file may be deleted right after. In an async tool, the reading of a large
    file blocks the event loop: use ``await asyncio.to_thread(emit_artifact, path=...)`` there. `sha256` and `size`
    describe the file behind a `url`; given with bytes, both must be correct.

    Raises OutsideRun outside a run of a tool, ValueError for invalid options and for an empty or too large file, and
    OSError when the path cannot be read.
    """
    collector = _current.get()
    if collector is None or not collector.open:
        raise OutsideRun("emit_artifact was called outside a run: call it inside a tool, before the tool returns")
    if sum(given is not None for given in (url, content, path)) != 1:
        raise ValueError("emit_artifact needs exactly one of url, content and path")
    if len(collector.artifacts) >= MAX_PER_RUN:
        raise ValueError(f"a tool may hand over {MAX_PER_RUN} files in one run: put more of them into one archive")
    mime_type = mime_type and mime_type.strip().lower()
    if mime_type is not None and not _MIME_TYPE.fullmatch(mime_type):
        raise ValueError(f"not a MIME type: {mime_type!r} (for example 'application/pdf')")
    if retention_seconds is not None and not 0 < retention_seconds < float("inf"):
        raise ValueError(f"retention_seconds must be a positive number of seconds, not {retention_seconds!r}")

    if url is not None:
        _check_url(url)
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise ValueError(f"not a SHA-256 in 64 small hex digits: {sha256!r}")
    if path is not None:
        content, filename = _read(Path(path)), filename or Path(path).name
    if content is not None:
        content = bytes(content)
        sha256, size = _measure(content, sha256, size)

    artifact = Artifact(
        url=url,
        sha256=sha256,
        size=size,
        mime_type=mime_type,
        filename=filename,
        role=role,
        retention_seconds=retention_seconds,
        content=content,
    )
    collector.artifacts.append(artifact)
    return artifact


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the url of an artifact must begin with https:// or http:// and name a host")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _measure(content: bytes, sha256: str | None, size: int | None) -> tuple[str, int]:
    if not content:
        raise ValueError("the file is empty")
    if len(content) > MAX_BYTES:
        raise ValueError(f"a file may have at most {MAX_BYTES // 1024 // 1024} MiB")
    digest = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, digest) or size not in (None, len(content)):
        raise ValueError("the sha256 or size given with the bytes is not theirs: leave both out, they are computed")
    return digest, len(content)
