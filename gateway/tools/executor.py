"""Executors of stashed actions: their checks and their execution after a yes."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from typing import Any, TypeAlias

from gateway.tools.pending_action import PendingAction
from gateway.tools.pieces import Pieces

__all__ = ["Executor", "Factory", "called", "check_executor", "check_factory", "made_by"]

Executor: TypeAlias = Callable[[], Any]
"""The callback that performs a confirmed action. It takes no arguments.

Its return value becomes the outcome. It is sync (run in a thread) or async.
"""

Factory: TypeAlias = Callable[[PendingAction], Executor]
"""A callback that makes the executor of a record, in the process that handles the answer."""


def check_executor(kind: str, executor: object) -> None:
    """Raise ValueError for an executor that cannot be called without arguments. None passes."""
    if executor is None:
        return
    if not callable(executor):
        raise ValueError(f"the executor of {kind!r} must be a function, not a {type(executor).__name__}")
    try:
        signature = inspect.signature(executor)
    except (ValueError, TypeError):  # some builtins have no signature
        return
    try:
        signature.bind()
    except TypeError as error:
        raise ValueError(
            f"the executor of {kind!r} is called without arguments, but it is {error}: "
            "bind them with functools.partial, or register a factory, which has them from the record"
        ) from None


def check_factory(kind: str, factory: object) -> None:
    """Raise ValueError for a factory that is not a function, or that is async."""
    if not callable(factory):
        raise ValueError(f"the factory of {kind!r} must be a function, not a {type(factory).__name__}")
    if inspect.iscoroutinefunction(factory) or inspect.iscoroutinefunction(getattr(factory, "__call__", None)):  # noqa: B004
        raise ValueError(f"the factory of {kind!r} must not be async: the executor that it makes may be")


def made_by(factory: Factory, action: PendingAction) -> Executor:
    """Return an executor that calls the factory when it runs. It raises TypeError when the factory makes none."""

    def execute() -> Any:
        executor: object = factory(action)
        if inspect.iscoroutine(executor):
            executor.close()  # it is never awaited
        if not callable(executor):
            raise TypeError(f"the factory of {action.kind!r} must make a function, not a {type(executor).__name__}")
        return executor()

    return execute


def called(executor: Executor) -> Any:
    """Return the result of an executor, or an awaitable of it. The pieces of a generator are joined to one text.

    A sync generator runs in this call, an async one when the result is awaited. Raises OutcomeUnknown for a generator
    that yields more than Pieces takes.
    """
    result = executor()
    if inspect.isasyncgen(result):
        return _joined(result)
    if not inspect.isgenerator(result):
        return result
    pieces = Pieces()
    with closing(result):
        for value in result:
            pieces.add(value)
    return pieces.joined()


async def _joined(generator: AsyncGenerator[Any, Any]) -> str:
    pieces = Pieces()
    async with aclosing(generator) as yielded:
        async for value in yielded:
            pieces.add(value)
    return pieces.joined()
