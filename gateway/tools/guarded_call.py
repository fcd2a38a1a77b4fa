"""The call of an author's function under its lock and timeout, with every error as one of the errors of tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

from pydantic import ValidationError

from gateway.deadlines import Deadline
from gateway.tools.errors import NothingDone, ToolBusy, ToolError, ToolExecutionError, ToolTimeout
from gateway.tools.function import GoesOn, NotBegun
from gateway.tools.locks import Hold, held, outlasted

__all__ = ["call_guarded"]

_ACCIDENTS = (UnicodeError, json.JSONDecodeError, OSError, ValidationError)
"""ValueErrors of clients and parsers for a broken answer. They are not refusals of a preview function."""


async def call_guarded(
    tool: str,
    call: Callable[[], Awaitable[Any]],
    *,
    limit: float | None,
    lock: str | None,
    hold: Hold | None = None,
    passing: tuple[type[Exception], ...] = (),
    on_late: Callable[[Future[Any]], None] | None = None,
) -> Any:
    """Await `call` under the named lock, within `limit` seconds including the wait for the lock; return its result.

    `hold` holds the lock among the processes of a store too. Errors of the types `passing` are raised as they are,
    except accidents of clients and parsers. `on_late` is called with the call of a sync function that runs on in its
    thread. Raises as `Tool.run`.
    """
    if lock is not None and outlasted(lock):
        raise ToolBusy(tool, lock)
    deadline, waiting, task = Deadline(limit), lock is not None, asyncio.current_task()
    try:
        with deadline:
            if lock is None:
                return await call()
            async with held(lock) as here, hold(lock) if hold is not None else nullcontext() as elsewhere:
                waiting = False
                try:
                    return await call()
                except GoesOn as error:
                    here.leave_to(error.call)
                    if elsewhere is not None:
                        elsewhere.leave_to(error.call)
                    raise
    except ToolError:
        raise
    except GoesOn as error:
        if on_late is not None:
            on_late(error.call)
        if _cancelling() or limit is None:
            raise asyncio.CancelledError from error
        raise ToolTimeout(tool, limit) from error
    except NotBegun as error:
        if _cancelling():
            raise asyncio.CancelledError from error
        raise NothingDone(f"Tool {tool!r} did not run: earlier calls of it have not ended") from error
    except BaseException as error:
        # A function may call sys.exit, leak a GeneratorExit or await a cancelled task. None of these may end the
        # process or the turn, or let a lease expire.
        if isinstance(error, passing) and not isinstance(error, _ACCIDENTS):
            raise
        if isinstance(error, KeyboardInterrupt) or _ends_the_caller(error, task):
            raise
        if not (isinstance(error, TimeoutError) and limit is not None and deadline.expired):
            raise ToolExecutionError(tool, error) from error
        if waiting and lock is not None:
            if outlasted(lock):
                raise ToolBusy(tool, lock) from error
            raise NothingDone(f"Tool {tool!r} did not run: another call holds {lock!r}") from error
        raise ToolTimeout(tool, limit) from error


def _ends_the_caller(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return True if the caller is ending: its task is cancelled, or its coroutine is closed from outside."""
    match error:
        case asyncio.CancelledError():
            return _cancelling()
        case GeneratorExit():
            try:
                return asyncio.current_task() is not task
            except RuntimeError:  # no event loop runs any more
                return True
        case _:
            return False


def _cancelling() -> bool:
    """Return True if the caller is being cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
