"""The free room is measured in a separate thread: busy threads of the loop hold up no message."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.files import DiskSpace
from gateway.store.types import Incoming
from tests.threads import no_more_threads

NEW = Incoming(conversation="c", event_ids=(), body={"text": "hello"}, refusable=True)


async def test_message_is_stored_while_all_loop_threads_wait_for_dns(tmp_path: Path) -> None:
    """A silent name server holds each look-up for many seconds, in a thread of the loop."""
    waits = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        looking_up = asyncio.get_running_loop().run_in_executor(None, waits.wait)
        try:
            store = SqliteStore(tmp_path / "askfirst.db")
            await store.open()
            async with asyncio.timeout(15):
                assert await store.accept([NEW]) == [True]
            await store.close()
        finally:
            waits.set()
        await looking_up


async def test_a_message_is_stored_where_no_thread_can_be_started(tmp_path: Path) -> None:
    file = tmp_path / "askfirst.db"
    full = DiskSpace(file, reserve_bytes=1 << 62, look_seconds=0.0, thread=ThreadPoolExecutor(1))
    store = SqliteStore(file, disk_space=full)
    await store.open()
    with no_more_threads():
        assert await store.accept([NEW]) == [True]
        assert await store.has_headroom(), "nobody could look"
    assert not await store.has_headroom()
    await store.close()


async def test_lack_of_room_and_its_end_are_logged_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "askfirst.db"
    looks = DiskSpace(file, reserve_bytes=1024, look_seconds=0.0)
    for free, enough in ((1024, True), (1023, False), (1024, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert [await looks.enough() for _ in range(3)] == [enough] * 3
    none, again = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert none.startswith(f"the disk of {file} has less than ")
    assert none.endswith("new messages and launches wait; make room")
    assert again == f"there is room again on the disk of {file}: goes on"
