"""What bot authors test their bots with, and what a new store or channel is tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.testing.clock import FakeClock
from gateway.testing.driver import ChatDriver, Shown
from gateway.testing.provider import ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from gateway.testing.store_contract import StoreContract

__all__ = ["ChatDriver", "FakeClock", "ScriptedProvider", "Shown", "StoreContract", "ToolCall"]


def __getattr__(name: str) -> Any:
    """The contract suites need pytest and Hypothesis, which a bot's own tests may do without."""
    if name == "StoreContract":
        from gateway.testing.store_contract import StoreContract

        return StoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
