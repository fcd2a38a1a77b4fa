"""The keeping, naming, typing and sweeping of files."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Media
from gateway.artifacts import (
    Artifact,
    ArtifactStore,
    NotKept,
    clean_filename,
    collecting,
    emit_artifact,
)
from gateway.artifacts.keep import RESERVE_BYTES
from tests.artifacts.test_pictures import png
from tests.threads import all_threads_hang

DAY = 86400.0


class Clock:
    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts", [b"k" * 32], public_url="https://bot.example.org/", now=clock)


def emitted(content: bytes, **options: object) -> Artifact:
    with collecting():
        return emit_artifact(content=content, **options)  # type: ignore[arg-type]


async def test_files_are_kept_and_swept_while_all_loop_threads_hang(store: ArtifactStore, clock: Clock) -> None:
    with all_threads_hang():
        async with asyncio.timeout(15):
            await store.keep(emitted(b"%PDF-1.7 ..."))
            clock.advance(31 * DAY)
            assert await store.sweep(clock()) == 1


async def test_kept_file_is_named_by_its_hash_and_stored_as_json(store: ArtifactStore) -> None:
    media = await store.keep(emitted(b"%PDF-1.7 ...", filename="INV-7.pdf", role="primary"))

    digest = hashlib.sha256(b"%PDF-1.7 ...").hexdigest()
    assert media == Media(sha256=digest, mime_type="application/pdf", filename="INV-7.pdf", size=12, role="primary")
    assert Media(**json.loads(json.dumps(asdict(media)))) == media
    assert [p.name for p in store.directory.iterdir()] == [digest]
    assert store.open(media).path.read_bytes() == b"%PDF-1.7 ..."


async def test_keeping_the_same_bytes_twice_at_once_leaves_one_file(store: ArtifactStore) -> None:
    first, second = await asyncio.gather(
        store.keep(emitted(b"same", filename="a.txt")), store.keep(emitted(b"same", filename="b.txt"))
    )

    assert (first.sha256, first.filename, second.filename) == (second.sha256, "a.txt", "b.txt")
    assert [p.name for p in store.directory.iterdir()] == [first.sha256]


async def test_file_that_cannot_be_written_leaves_no_file_behind(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotKept, match="No space left on device"):
        await store.keep(emitted(b"x"))
    assert list(store.directory.iterdir()) == []


async def test_an_artifact_that_is_only_a_url_has_no_bytes_to_keep(store: ArtifactStore) -> None:
    with collecting():
        artifact = emit_artifact("https://example.org/x.pdf")
    with pytest.raises(ValueError, match="only a URL"):
        await store.keep(artifact)


@pytest.mark.parametrize(
    ("content", "filename", "mime_type"),
    [
        (png(2, 2), None, "image/png"),
        (b"\x89PNG\r\n\x1a\n" + bytes(16), "chart.png", "application/octet-stream"),
        (b"<html><body>", "harmless.png", "text/html"),
        (b"a,b\n1,2\n", "table.csv", "text/csv"),
        (b"plain words", None, "text/plain"),
        (b"\x00\xff\xfe\x01", None, "application/octet-stream"),
    ],
)
async def test_file_without_a_type_is_typed_by_its_bytes(
    store: ArtifactStore, content: bytes, filename: str | None, mime_type: str
) -> None:
    media = await store.keep(emitted(content, filename=filename))
    assert media.mime_type == mime_type


async def test_only_files_past_their_stay_are_swept(store: ArtifactStore, clock: Clock) -> None:
    long = await store.keep(emitted(b"long", retention_seconds=60 * DAY))
    usual = await store.keep(emitted(b"usual"))
    short = await store.keep(emitted(b"short", retention_seconds=3 * DAY))
    shortest = await store.keep(emitted(b"shortest", retention_seconds=1))

    def there() -> set[str]:
        return {p.name for p in store.directory.iterdir()}

    assert await store.sweep(clock()) == 0
    clock.advance(1.9 * DAY)  # a delivery may take a day, and its link lives for another
    assert await store.sweep(clock()) == 0
    clock.advance(0.2 * DAY)
    assert await store.sweep(clock()) == 1
    assert there() == {long.sha256, usual.sha256, short.sha256}
    clock.advance(1 * DAY)
    assert await store.sweep(clock()) == 1
    clock.advance(27 * DAY)
    assert await store.sweep(clock()) == 1
    assert there() == {long.sha256}
    assert shortest.sha256 not in there()


async def test_keeping_a_file_again_restarts_but_never_cuts_its_stay(store: ArtifactStore, clock: Clock) -> None:
    media = await store.keep(emitted(b"again"))
    clock.advance(20 * DAY)
    await store.keep(emitted(b"again"))
    await store.keep(emitted(b"again", retention_seconds=2 * DAY))
    clock.advance(29 * DAY)
    assert await store.sweep(clock()) == 0
    assert store.open(media).path.exists()


async def test_the_sweep_spares_a_file_that_was_kept_again_meanwhile(
    store: ArtifactStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    media = await store.keep(emitted(b"again"))
    clock.advance(31 * DAY)
    path = store.open(media).path
    rename: Callable[[Path, Path], Path] = Path.rename

    def kept_again_just_before(self: Path, target: Path) -> Path:
        if self == path:
            os.utime(path, (clock.time.timestamp(), clock.time.timestamp()))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", kept_again_just_before)
    assert await store.sweep(clock()) == 0
    assert path.read_bytes() == b"again"


async def test_half_written_file_of_a_crash_is_swept_later(store: ArtifactStore, clock: Clock) -> None:
    await store.keep(emitted(b"x"))
    half = store.directory / ".abc.new"
    half.write_bytes(b"half")

    await store.sweep(clock())
    assert half.exists()
    clock.advance(32 * DAY)
    await store.sweep(clock())
    assert list(store.directory.iterdir()) == []


async def test_sweeping_before_anything_was_kept_is_no_error(store: ArtifactStore, clock: Clock) -> None:
    assert await store.sweep(clock()) == 0


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("INV-7.pdf", "INV-7.pdf"),
        ("../../etc/passwd", "passwd.pdf"),
        ("．．／etc／passwd.pdf", "passwd.pdf"),
        ("C:\\Users\\ana\\a.pdf", "a.pdf"),
        ("/absolute.pdf", "absolute.pdf"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("a\r\nSet-Cookie: b.pdf", "a Set-Cookie_ b.pdf"),
        ("nul\x00.pdf", "_nul.pdf"),
        ("...", "file.pdf"),
        ("", "file.pdf"),
        (None, "file.pdf"),
        ("con.pdf", "_con.pdf"),
        ('quo"te.pdf', "quo_te.pdf"),
        ("relatório março.pdf", "relatório março.pdf"),
        ("請求書.pdf", "請求書.pdf"),
        ("x" * 300 + ".pdf", "x" * 96 + ".pdf"),
    ],
)
def test_a_file_name_is_made_harmless(name: str | None, clean: str) -> None:
    assert clean_filename(name, "application/pdf") == clean


@given(st.text(max_size=300))
def test_no_name_escapes_or_grows(name: str) -> None:
    clean = clean_filename(name, "application/pdf")
    assert 0 < len(clean) <= 100
    assert clean not in (".", "..")
    assert not any(c in clean for c in '/\\\0\r\n"')
    assert clean.isprintable()
    assert clean_filename(clean, "application/pdf") == clean


# ── when room is short ──


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> Callable[[int], ArtifactStore]:
    """A store on a disk with this many bytes beyond the reserve."""

    def made(size: int) -> ArtifactStore:
        directory = tmp_path / "artifacts"

        def free(where: Path) -> int:
            return RESERVE_BYTES + size - sum(path.stat().st_size for path in where.iterdir())

        return ArtifactStore(directory, [b"k" * 32], public_url=None, now=clock, free=free)

    return made


async def test_file_never_takes_the_room_for_decisions(disk: Callable[[int], ArtifactStore]) -> None:
    store = disk(2_500)
    for letter in b"ab":
        await store.keep(emitted(bytes([letter]) * 1_000))
    with pytest.raises(NotKept, match="128 MiB would be free; make room"):
        await store.keep(emitted(b"c" * 1_000))
    await store.keep(emitted(b"a" * 1_000))  # this file is kept already


async def test_files_no_delivery_needs_are_removed_for_new_ones(
    disk: Callable[[int], ArtifactStore], clock: Clock
) -> None:
    store = disk(3_500)
    for letter in b"abc":
        await store.keep(emitted(bytes([letter]) * 1_000))
        clock.advance(DAY)
    await store.keep(emitted(b"d" * 1_000))
    left = {path.read_bytes()[:1] for path in store.directory.iterdir()}
    assert left == {b"b", b"c", b"d"}


async def test_a_file_of_a_short_stay_is_not_taken_for_an_old_one(
    disk: Callable[[int], ArtifactStore], clock: Clock
) -> None:
    store = disk(1_500)
    await store.keep(emitted(b"a" * 1_000, retention_seconds=1))
    with pytest.raises(NotKept):
        await store.keep(emitted(b"b" * 1_000))
    clock.advance(2 * DAY + 1)
    await store.keep(emitted(b"b" * 1_000))
