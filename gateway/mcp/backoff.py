"""The times at which a connection that failed is tried again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Growing pauses: one second after the first failure, twice as much after each further one, a minute at most."""

    failures: int = 0
    until: float = 0.0

    def left(self, now: float) -> float:
        """Return the seconds until the next try; 0 for none."""
        return max(0.0, self.until - now)

    def failed(self, now: float) -> None:
        """Note a failure."""
        self.until = now + min(60.0, 2.0**self.failures)
        self.failures = min(self.failures + 1, 6)

    def worked(self) -> None:
        """Note a success: the next failure is the first again."""
        self.failures, self.until = 0, 0.0
