"""Deferred confirmation: a confirmation runs exactly the shown side effect, once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gateway.pending.reading import ConfirmParser, RegexConfirmParser, ReplyParser
from gateway.tools.confirm import VERBS
from gateway.tools.pending_action import PendingAction, compute_args_digest
from gateway.tools.stash import DEFAULT_TTL_SECONDS, PendingActionExistsError, stash_pending

if TYPE_CHECKING:
    from gateway.pending.seed import (
        DEFAULT_IGNORE_TTL_SECONDS,
        ConfirmOutcome,
        InMemoryPendingStore,
        RedisPendingStore,
        SqlitePendingStore,
    )

__all__ = [
    "DEFAULT_IGNORE_TTL_SECONDS",
    "DEFAULT_TTL_SECONDS",
    "VERBS",
    "ConfirmOutcome",
    "ConfirmParser",
    "InMemoryPendingStore",
    "PendingAction",
    "PendingActionExistsError",
    "RedisPendingStore",
    "RegexConfirmParser",
    "ReplyParser",
    "SqlitePendingStore",
    "compute_args_digest",
    "stash_pending",
]

_LATER = frozenset(
    {
        "DEFAULT_IGNORE_TTL_SECONDS",
        "ConfirmOutcome",
        "InMemoryPendingStore",
        "RedisPendingStore",
        "SqlitePendingStore",
    }
)
"""The names of `seed`, imported at first use: a bot's own questions need no pending store."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.seed"), name)
