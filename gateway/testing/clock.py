"""FakeClock: a clock that a test moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class FakeClock:
    """The offset of the store's clock, for stamps, deadlines and timers. Leases run on real time."""

    def __init__(self) -> None:
        self.offset_seconds = 0.0
        self._moved: Callable[[float], Awaitable[None]] | None = None

    def attach(self, moved: Callable[[float], Awaitable[None]]) -> None:
        """Call `moved` with the new offset in seconds whenever the clock is moved."""
        self._moved = moved

    async def advance(self, seconds: float) -> None:
        """Move the clock forward; returns when all due timers are worked. Raises ValueError for a negative number."""
        if seconds < 0:
            raise ValueError("time does not go backwards")
        self.offset_seconds += seconds
        if self._moved is not None:
            await self._moved(self.offset_seconds)
