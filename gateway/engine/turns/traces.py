"""The stored trace of a turn: a record in the commit that ends it."""

from __future__ import annotations

from gateway.engine.context import EngineContext
from gateway.engine.turns.running import RunningTurn
from gateway.observe.bounded import bounded
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys
from gateway.turn import Outcome

__all__ = ["keep_trace"]


def keep_trace(transaction: Transaction, context: EngineContext, running: RunningTurn, outcome: Outcome) -> None:
    """Store the trace of a turn in which the model was called, unless traces are off."""
    if outcome.loop is None or not context.traces_ttl_seconds:
        return
    name = keys.key(context.store, running.conversation, keys.trace, running.events.run_id).name
    transaction.puts[name] = Put(bounded(outcome.loop.trace).to_dict(), context.traces_ttl_seconds)
