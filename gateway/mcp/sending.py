"""A request on its way to a server: if it may have arrived, the outcome of a call that fails is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LARGEST = 64 * 1024 * 1024
"""The most bytes of one message, or of one HTTP answer. A server that sends more is cut off."""


@dataclass(slots=True)
class Sending:
    """The state of one request."""

    begun: bool = False
    """True once bytes of it have left this process."""
    status: int | None = None
    """The status of the HTTP answer; None for none yet."""


_current: ContextVar[Sending | None] = ContextVar("askfirst_mcp_sending", default=None)


@contextmanager
def sending() -> Iterator[Sending]:
    """Observe the request that is sent inside the block, also by tasks that have a copy of the context."""
    state = Sending()
    token = _current.set(state)
    try:
        yield state
    finally:
        _current.reset(token)


def begun() -> None:
    """Note that the request of this context begins to leave."""
    if (state := _current.get()) is not None:
        state.begun = True


def refused_with(status: int) -> None:
    """Note the status of the HTTP answer to the request of this context."""
    if (state := _current.get()) is not None:
        state.status = status
