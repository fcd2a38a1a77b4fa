"""The stored trace of a turn: a record in the commit that ends it."""

from __future__ import annotations

import logging

from gateway.engine.context import EngineContext
from gateway.engine.turns.running import RunningTurn
from gateway.logs import describe_error
from gateway.observe.bounded import bounded_json
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys
from gateway.turn import Outcome

__all__ = ["keep_trace"]

log = logging.getLogger("askfirst.turns")


def keep_trace(transaction: Transaction, context: EngineContext, running: RunningTurn, outcome: Outcome) -> None:
    """Store the trace of a turn in which the model was called, unless traces are off."""
    if outcome.loop is None or not context.traces_ttl_seconds:
        return
    name = keys.key(context.store, running.conversation, keys.trace, running.events.run_id).name
    try:
        stored = bounded_json(outcome.loop.trace)
    except (TypeError, ValueError) as error:  # a trace must not keep a turn from its end
        log.warning("the trace of a turn of %s is not stored: %s", running.conversation, describe_error(error))
        return
    transaction.puts[name] = Put(stored, context.traces_ttl_seconds)
