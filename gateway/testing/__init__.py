"""Testing: a driver and doubles for the tests of a bot, and the contracts of stores and channels."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gateway.testing.doubles import FakeClock, FaultyStore, LocalProvider, RecordingObserver, ScriptedProvider, ToolCall
from gateway.testing.driver import ChatDriver, Shown
from gateway.testing.tools import ToolRun, run_tool

if TYPE_CHECKING:
    from gateway.testing.channel_contract import (
        RETRY_AFTER_SECONDS,
        Arrived,
        ArrivedFile,
        ChannelCase,
        ChannelContract,
        Delivery,
        Fault,
        MessageField,
        Platform,
        Webhook,
    )
    from gateway.testing.store_contract import StoreContract

__all__ = [
    "RETRY_AFTER_SECONDS",
    "Arrived",
    "ArrivedFile",
    "ChannelCase",
    "ChannelContract",
    "ChatDriver",
    "Delivery",
    "FakeClock",
    "Fault",
    "FaultyStore",
    "LocalProvider",
    "MessageField",
    "Platform",
    "RecordingObserver",
    "ScriptedProvider",
    "Shown",
    "StoreContract",
    "ToolCall",
    "ToolRun",
    "Webhook",
    "run_tool",
]


def __getattr__(name: str) -> Any:
    """Import the contracts at the first use: pytest and Hypothesis are required by the contracts, but not by a bot's
    tests."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = f"{__name__}.{'store_contract' if name == 'StoreContract' else 'channel_contract'}"
    if room not in sys.modules:
        import_module("pytest").register_assert_rewrite(room)  # a failed assertion shows the compared values
    return getattr(import_module(room), name)
