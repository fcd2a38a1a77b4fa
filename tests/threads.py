"""A machine that runs out of threads, and a loop whose threads are all held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

__all__ = ["all_threads_hang", "no_more_threads"]


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Each start of a thread in this process fails meanwhile, by the system's own refusal (RuntimeError): each asks for
    a stack that is larger than all the memory a process can name. What is running goes on."""
    before = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextmanager
def all_threads_hang() -> Iterator[None]:
    """All threads of the running loop hang meanwhile, as in an author's `asyncio.to_thread`."""
    loop, let_go = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    _ = loop.run_in_executor(None, let_go.wait)
    try:
        yield
    finally:
        let_go.set()
