"""A token with which any thread cancels runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable

from gateway.tools.stopping import Stopping

__all__ = ["CancellationToken"]


class CancellationToken:
    """Cancels the runs that it was given to, from any thread, and for good.

    The request to the model is dropped, and what has finished stays: the run returns its result with the stop reason
    ``cancelled``. A running tool is not interrupted; it may check ``ctx.cancelled``. A run with a cancelled token ends
    at once.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._stop: set[Callable[[], object]] = set()
        self.cancelled = False
        """True after `cancel`."""
        self.reason = ""
        """The reason that the first `cancel` gave."""

    def cancel(self, reason: str = "") -> None:
        """Cancel the runs. `reason` is for observers and the trace. A second call changes nothing."""
        with self._changing:
            if self.cancelled:
                return
            self.cancelled, self.reason = True, reason
            stop, self._stop = self._stop, set()
        for each in stop:
            each()

    @contextlib.asynccontextmanager
    async def stopping(self, outer: Stopping) -> AsyncIterator[Stopping]:
        """Yield an event that is set when this token is cancelled or `outer` is set."""
        stopping, loop, thread = Stopping(), asyncio.get_running_loop(), threading.current_thread()

        def stop() -> None:
            if threading.current_thread() is thread:
                stopping.set()
                return
            with contextlib.suppress(RuntimeError):  # the loop is closed: its runs have ended
                loop.call_soon_threadsafe(stopping.set)

        with self._changing:
            if self.cancelled or outer.is_set():
                stopping.set()
            else:
                self._stop.add(stop)
        outer.call(stopping.set)
        try:
            yield stopping
        finally:
            outer.no_longer_call(stopping.set)
            with self._changing:
                self._stop.discard(stop)
