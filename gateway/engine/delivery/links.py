"""The links to the files of a conversation. All links of a series end together, when the next series begins."""

from __future__ import annotations

import secrets

from gateway.engine.context import EngineContext
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys


async def series_of(context: EngineContext, conversation: str) -> str:
    """Return the series of the conversation's present links. Raises StoreUnavailable."""
    key = keys.key(context.store, conversation, keys.links)
    found = (await context.store.get([key]))[key].value
    return found if isinstance(found, str) else ""


def end_links(transaction: Transaction, context: EngineContext, conversation: str) -> None:
    """End all earlier links of this conversation in the transaction.

    The name of the next series is random, so no record is read first. A retry of the commit may draw another name.
    """
    transaction.puts[keys.key(context.store, conversation, keys.links).name] = Put(secrets.token_urlsafe(6))
