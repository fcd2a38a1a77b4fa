"""The lifespan of a bot: the resources that its author opens with it and closes after it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from channels import AskfirstError
from gateway.logs import describe_error

__all__ = ["Lifespan", "LifespanFailed", "lived"]

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class LifespanFailed(AskfirstError):
    """The bot's own `lifespan` raised `error`, on enter (then the bot does not run) or on exit.

    The message names the place. The text of `error`, which may hold a secret of the bot, is only in `error`.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the bot's lifespan failed: {describe_error(error)}")
        self.error = error


@contextlib.asynccontextmanager
async def lived(lifespan: Lifespan) -> AsyncIterator[Any]:
    """Enter and leave a bot's lifespan. Raises LifespanFailed for errors that the lifespan raises itself."""
    stack = contextlib.AsyncExitStack()
    try:
        yielded = await stack.enter_async_context(lifespan())
    except Exception as error:
        raise LifespanFailed(error) from error
    try:
        yield yielded
    except BaseException as raised:
        await stack.__aexit__(type(raised), raised, raised.__traceback__)
        raise
    try:
        await stack.aclose()
    except Exception as error:
        raise LifespanFailed(error) from error
