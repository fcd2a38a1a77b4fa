"""selectools' pending stores over sealed records: one action a scope, stashed with its executor, run by an answer."""

from gateway.pending.seed.base import InMemoryPendingStore, RedisPendingStore, SqlitePendingStore
from gateway.pending.seed.outcome import DEFAULT_IGNORE_TTL_SECONDS, ConfirmOutcome

__all__ = [
    "DEFAULT_IGNORE_TTL_SECONDS",
    "ConfirmOutcome",
    "InMemoryPendingStore",
    "RedisPendingStore",
    "SqlitePendingStore",
]
