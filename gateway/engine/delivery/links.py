"""The links to files that a conversation was sent: they end together, when it begins another series of them."""

from __future__ import annotations

import secrets

from gateway.engine.context import EngineContext
from gateway.store.base import Put, Transaction

__all__ = ["end_links", "series_of"]


async def series_of(context: EngineContext, conversation: str) -> str:
    """Which series its links are of now. Raises StoreUnavailable."""
    key = context.key(conversation, "links")
    found = (await context.store.get([key]))[key].value
    return found if isinstance(found, str) else ""


def end_links(context: EngineContext, conversation: str, transaction: Transaction) -> None:
    """End every link that was made for this conversation so far: what comes next is of another series.

    Nothing is read for it. A name that is drawn, and drawn again when the commit is tried again, is as good as a count.
    """
    transaction.puts[context.key(conversation, "links").name] = Put(secrets.token_urlsafe(6))
