"""The budgets that a run shares with others."""

from __future__ import annotations

from typing import Protocol

from gateway.providers.base import Usage

__all__ = ["Expenses"]


class Expenses(Protocol):
    """The budgets that a run shares with others, and the book of what it spends."""

    async def used_up(self) -> str | None:
        """Return which budget is used up, asked before each call to the model. None if the call may be made."""
        ...

    def add(self, usage: Usage) -> None:
        """Add the usage of a call to the model. It is booked with the next step or with the end of the turn."""
        ...
