"""The files of a tool, and the run of each file."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from pathlib import Path

import pytest

from channels import AskfirstError
from gateway.artifacts import MAX_BYTES, MAX_PER_RUN, OutsideRun, collecting, emit_artifact


@pytest.mark.ledger("RES-09", "RES-11", "RES-12")
def test_emitted_files_are_collected_in_order_with_hash_and_size() -> None:
    with collecting() as artifacts:
        chart = emit_artifact(content=b"chart", mime_type="image/png", filename="Q2.png", role="primary")
        there = emit_artifact("https://example.org/q2.png", sha256="0" * 64, size=7, role="preview")

    assert artifacts == [chart, there]
    assert (chart.sha256, chart.size) == (hashlib.sha256(b"chart").hexdigest(), 5)
    assert (chart.mime_type, chart.filename, chart.role, chart.content) == ("image/png", "Q2.png", "primary", b"chart")
    assert (there.url, there.sha256, there.size, there.content) == ("https://example.org/q2.png", "0" * 64, 7, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        chart.role = "other"  # type: ignore[misc]


def test_a_path_is_read_at_once_and_gives_the_name(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_bytes(b"hello")
    with collecting() as artifacts:
        emit_artifact(path=path)
        path.unlink()

    assert [(a.content, a.filename) for a in artifacts] == [(b"hello", "report.txt")]


@pytest.mark.ledger("RES-13")
async def test_runs_at_the_same_time_each_get_their_own() -> None:
    both_inside = asyncio.Barrier(2)

    async def run(content: bytes) -> list[bytes | None]:
        with collecting() as artifacts:
            await both_inside.wait()
            emit_artifact(content=content)
            await both_inside.wait()
            return [a.content for a in artifacts]

    one, two = await asyncio.gather(run(b"one"), run(b"two"))
    assert one == [b"one"]
    assert two == [b"two"]


@pytest.mark.ledger("RES-14")
async def test_a_worker_thread_emits_into_the_run_that_started_it() -> None:
    with collecting() as artifacts:
        await asyncio.to_thread(emit_artifact, content=b"from a thread")

    assert [a.content for a in artifacts] == [b"from a thread"]


def test_an_inner_run_keeps_its_files_from_the_outer_one() -> None:
    with collecting() as outer:
        with collecting() as inner:
            emit_artifact(content=b"inner")
        emit_artifact(content=b"outer")

    assert [a.content for a in inner] == [b"inner"]
    assert [a.content for a in outer] == [b"outer"]


@pytest.mark.ledger("RES-15")
def test_emitting_outside_a_run_is_refused_with_the_mend() -> None:
    with pytest.raises(OutsideRun, match="call it inside a tool") as caught:
        emit_artifact(content=b"x")
    assert isinstance(caught.value, AskfirstError)


async def test_emitting_after_the_end_of_the_run_is_refused() -> None:
    ended = asyncio.Event()

    async def straggler() -> None:
        await ended.wait()
        emit_artifact(content=b"too late")

    with collecting() as artifacts:
        task = asyncio.create_task(straggler())
    ended.set()

    with pytest.raises(OutsideRun):
        await task
    assert artifacts == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one"),
        ({"url": "https://example.org/", "content": b"x"}, "exactly one"),
        ({"url": "file:///etc/passwd"}, "https://"),
        ({"url": "javascript:alert(1)"}, "https://"),
        ({"url": "https:///nohost"}, "host"),
        ({"url": "https://example.org/", "sha256": "XYZ"}, "SHA-256"),
        ({"content": b""}, "empty"),
        ({"content": b"x" * (MAX_BYTES + 1)}, "25 MiB"),
        ({"content": b"x", "sha256": "0" * 64}, "not theirs"),
        ({"content": b"x", "size": 2}, "not theirs"),
        ({"content": b"x", "mime_type": "pdf"}, "MIME type"),
        ({"content": b"x", "mime_type": "text/html\r\nSet-Cookie: a=b"}, "MIME type"),
        ({"content": b"x", "retention_seconds": 0}, "positive"),
        ({"content": b"x", "retention_seconds": float("nan")}, "positive"),
        ({"content": b"x", "retention_seconds": float("inf")}, "positive"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], message: str) -> None:
    with collecting() as artifacts, pytest.raises(ValueError, match=message):
        emit_artifact(**options)  # type: ignore[arg-type]
    assert artifacts == []


def test_files_of_a_run_are_limited() -> None:
    with collecting() as artifacts:
        for number in range(MAX_PER_RUN):
            emit_artifact(content=b"%d" % number)
        with pytest.raises(ValueError, match="one archive"):
            emit_artifact(content=b"one more")
    assert len(artifacts) == MAX_PER_RUN
