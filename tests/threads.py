"""A machine without free threads, and a loop with hanging threads only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from channels.cancellable_threads import FILES, hand_over

__all__ = ["all_threads_hang", "files_hang", "no_more_threads"]


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Let each start of a thread in this process fail with the system's refusal (RuntimeError). Each start requests a
    stack larger than the address space. Running threads go on."""
    before = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextmanager
def files_hang() -> Iterator[None]:
    """Let all threads for files hang, as on a disk without an answer."""
    let_go = threading.Event()
    for _ in range(FILES._max_workers):
        hand_over(let_go.wait, threads=FILES)
    try:
        yield
    finally:
        let_go.set()


@contextmanager
def all_threads_hang() -> Iterator[None]:
    """Let all threads of the running loop hang, as in an author's `asyncio.to_thread`."""
    loop, let_go = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    _ = loop.run_in_executor(None, let_go.wait)
    try:
        yield
    finally:
        let_go.set()
