"""selectools' pending stores over sealed records: one action a scope, stashed with its executor, run by an answer."""

from gateway.pending.seed.outcome import DEFAULT_IGNORE_TTL_SECONDS, ConfirmOutcome
from gateway.pending.seed.stores import InMemoryPendingStore, RedisPendingStore, SqlitePendingStore

__all__ = [
    "DEFAULT_IGNORE_TTL_SECONDS",
    "ConfirmOutcome",
    "InMemoryPendingStore",
    "RedisPendingStore",
    "SqlitePendingStore",
]
