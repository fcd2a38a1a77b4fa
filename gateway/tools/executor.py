"""The executors of what was stashed: which of them can be called at a yes, and how they are."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from gateway.tools.pending_action import PendingAction

__all__ = ["Executor", "Factory", "called", "check_executor", "check_factory", "made_by"]

Executor: TypeAlias = Callable[[], Any]
"""Does what was confirmed. Takes nothing; what it returns is told. Sync (run in a thread) or async."""

Factory: TypeAlias = Callable[[PendingAction], Executor]
"""Makes the executor of a record, in whichever process the answer comes to."""


def check_executor(kind: str, executor: object) -> None:
    """Raise ValueError for an executor that a yes could not call; None is none."""
    if executor is None:
        return
    if not callable(executor):
        raise ValueError(f"the executor of {kind!r} must be a function, not a {type(executor).__name__}")
    try:
        signature = inspect.signature(executor)
    except (ValueError, TypeError):  # some builtins have none
        return
    try:
        signature.bind()
    except TypeError as error:
        raise ValueError(
            f"the executor of {kind!r} is called without arguments, but it is {error}: "
            "bind them with functools.partial, or register a factory, which has them from the record"
        ) from None


def check_factory(kind: str, factory: object) -> None:
    """Raise ValueError for a factory that cannot make an executor: no function, or an async one."""
    if not callable(factory):
        raise ValueError(f"the factory of {kind!r} must be a function, not a {type(factory).__name__}")
    if inspect.iscoroutinefunction(factory) or inspect.iscoroutinefunction(getattr(factory, "__call__", None)):  # noqa: B004
        raise ValueError(f"the factory of {kind!r} must not be async: the executor that it makes may be")


def made_by(factory: Factory, action: PendingAction) -> Executor:
    """Return an executor that is made of the record when it is called. It raises TypeError when none is made."""

    def execute() -> Any:
        executor: object = factory(action)
        if inspect.iscoroutine(executor):
            executor.close()  # nobody awaits it
        if not callable(executor):
            raise TypeError(f"the factory of {action.kind!r} must make a function, not a {type(executor).__name__}")
        return called(executor)

    return execute


def called(executor: Executor) -> Any:
    """Return what an executor returns, or an awaitable of it; the pieces of a generator become one text, as a tool's.

    What a generator does, it does here, or when it is awaited.
    """
    result = executor()
    if inspect.isasyncgen(result):
        return _joined(result)
    return "".join(map(str, result)) if inspect.isgenerator(result) else result


async def _joined(generator: AsyncGenerator[Any, Any]) -> str:
    async with aclosing(generator) as pieces:
        return "".join([str(piece) async for piece in pieces])
