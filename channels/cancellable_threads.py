"""Calls in threads. A call is skipped when the caller is cancelled before the call begins."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

FILES = ThreadPoolExecutor(max_workers=8, thread_name_prefix="askfirst-file")
"""Threads for the files of chats. The event loop's own threads may be full of hanging calls of an author."""
WORK = ThreadPoolExecutor(max_workers=4, thread_name_prefix="askfirst-work")
"""Threads for bounded work of the processor, such as reading the words of a language. A hanging disk fills none."""


async def in_thread(function: Callable[[], T], *, threads: Executor | None = None) -> T:
    """Run a function as `hand_over` does and return its result. Raises RuntimeError as `hand_over` does."""
    return await asyncio.wrap_future(hand_over(function, threads=threads))


def hand_over(function: Callable[[], T], *, threads: Executor | None = None) -> Future[T]:
    """Run a function in one of `threads`, or of the event loop's threads, in a copy of the caller's context.

    Cancelling the future succeeds exactly when the function has not begun. The function then never begins. Raises
    RuntimeError when no thread can be started; the function is then not run, now or later.
    """
    context = contextvars.copy_context()
    ended: Future[T] = Future()

    def run() -> None:
        if ended.set_running_or_notify_cancel():
            try:
                ended.set_result(context.run(function))
            except BaseException as error:  # noqa: BLE001 - the waiting caller raises it
                ended.set_exception(error)

    try:
        _ = asyncio.get_running_loop().run_in_executor(threads, run)
    except RuntimeError:  # the call stays in the pool's queue, where a thread started later would run it
        if ended.cancel():
            raise
    return ended
