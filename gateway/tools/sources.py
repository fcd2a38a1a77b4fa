"""ToolSource: something among an agent's tools that lists its tools later, such as a server of other people's tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from gateway.tools.tool import Tool

__all__ = ["ToolSource"]


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools that may change while the bot runs. It stands among the tools of an Agent."""

    @property
    def label(self) -> str:
        """The name of the source in logs and lists, without a secret."""

    def listed(self) -> Sequence[Tool]:
        """Return the tools of the last list. It is the same object until the list changes."""

    async def refresh(self) -> None:
        """Bring the list up to date. Called before each turn.

        A source that cannot be reached keeps its last list. Never raises, and never waits long.
        """

    async def close(self) -> None:
        """Close what the source has open in this event loop. A later use opens it again."""
