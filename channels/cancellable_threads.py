"""Calls in threads that are not made later, when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["FILES", "hand_over", "in_thread"]

T = TypeVar("T")

FILES = ThreadPoolExecutor(max_workers=8, thread_name_prefix="askfirst-file")
"""For what reads and writes the files of a chat: an author's calls that hang may fill the loop's own."""


async def in_thread(function: Callable[[], T], *, threads: Executor | None = None) -> T:
    """What the function returns, run as `hand_over` says. Raises RuntimeError as that does."""
    return await asyncio.wrap_future(hand_over(function, threads=threads))


def hand_over(function: Callable[[], T], *, threads: Executor | None = None) -> Future[T]:
    """Have it run in one of these threads, or of the loop's, in a copy of the caller's context.

    Whether cancelling the future succeeds says whether the function had not begun; then it never will. Raises
    RuntimeError when no thread can be started; the function is not run then, now or later.
    """
    context = contextvars.copy_context()
    ended: Future[T] = Future()

    def run() -> None:
        if ended.set_running_or_notify_cancel():
            try:
                ended.set_result(context.run(function))
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                ended.set_exception(error)

    try:
        _ = asyncio.get_running_loop().run_in_executor(threads, run)
    except RuntimeError:  # but it is in the pool's queue, and a thread that is started for another would take it up
        if ended.cancel():
            raise
    return ended
