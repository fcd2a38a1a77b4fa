"""Traces: the stored trace of a run is a record in the run's final commit."""

from __future__ import annotations

import logging

from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.logs import describe_error
from gateway.observe.bounded import bounded_json
from gateway.observe.trace import AgentTrace
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys

log = logging.getLogger("askfirst.turns")


def keep_trace(transaction: Transaction, context: EngineContext, conversation: str, trace: AgentTrace) -> None:
    """Store the trace of a run with a call to the model, unless traces are off."""
    if not context.rules.traces_ttl_seconds:
        return
    name = keys.key(context.store, conversation, keys.trace, trace.run_id).name
    try:
        stored = bounded_json(trace)
    except (TypeError, ValueError) as error:  # a trace must not keep a turn from its end
        log.warning("the trace of a turn of %s is not stored: %s", conversation, describe_error(error))
        return
    transaction.puts[name] = Put(stored, context.rules.traces_ttl_seconds)


class Traces(TurnFeature):
    """Stores the trace of a turn with a call to the model."""

    async def contribute(self, ending: Ending) -> None:
        if ending.outcome is not None and ending.outcome.loop is not None:
            keep_trace(ending.transaction, self.context, ending.turn.conversation, ending.outcome.loop.trace)
