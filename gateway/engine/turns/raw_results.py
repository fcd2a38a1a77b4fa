"""The results of tools before they were shortened: records in the commit of their turn, which a later turn can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.engine.context import EngineContext
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys
from gateway.turn import Outcome

_TTL_SECONDS: Final = 24 * 3600


def keep_raw_results(transaction: Transaction, context: EngineContext, conversation: str, outcome: Outcome) -> None:
    """Keep the raw results of a turn for a day, in place of those of an earlier turn."""
    for tool_name, texts in (outcome.loop.raw_results if outcome.loop is not None else {}).items():
        name = keys.key(context.store, conversation, keys.raw_results, tool_name).name
        transaction.puts[name] = Put(context.sealed(name, list(texts)), _TTL_SECONDS)


async def earlier_results(context: EngineContext, conversation: str, tool_name: str) -> Sequence[str]:
    """Return the raw results of a tool that an earlier turn of this conversation has kept, newest first."""
    key = keys.key(context.store, conversation, keys.raw_results, tool_name)
    texts = context.unsealed(key, (await context.store.get([key]))[key], conversation)
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
