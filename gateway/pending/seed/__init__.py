"""selectools' pending stores over sealed records: an action per scope, stashed with its executor, run after a yes."""

from gateway.pending.seed.base import InMemoryPendingStore, RedisPendingStore, SqlitePendingStore
from gateway.pending.seed.outcome import DEFAULT_IGNORE_TTL_SECONDS, ConfirmOutcome

__all__ = [
    "DEFAULT_IGNORE_TTL_SECONDS",
    "ConfirmOutcome",
    "InMemoryPendingStore",
    "RedisPendingStore",
    "SqlitePendingStore",
]
