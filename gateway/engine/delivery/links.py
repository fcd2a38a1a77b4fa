"""The links to the files of a conversation. All links of a series end together, when the next series begins.

The token in a link is the two digits of the partition and a short token. The rest of the token is a record.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from channels import Media
from gateway.artifacts import LINK_SECONDS, SHORT_LENGTH, BadLink, Holder, OfConversation, cut
from gateway.engine.context import EngineContext
from gateway.pending.tokens import token_sha256
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys

_DIGITS: Final = 2


async def make_link(context: EngineContext, conversation: str, media: Media) -> str:
    """Return the URL of a file for this conversation. Raises StoreUnavailable."""
    artifacts, partition = context.artifacts, context.store.partition(conversation)
    holder = OfConversation(conversation, await _series(context, conversation))
    token, rest = cut(artifacts.sign(media, holder, lives_seconds=LINK_SECONDS))
    put = Put({"conversation": conversation, "rest": rest}, LINK_SECONDS)
    await context.commit(Transaction(partition=partition, puts={keys.short_link(token_sha256(token)): put}))
    return f"{artifacts.public_url}/artifacts/{partition}{token}"


async def follow_link(context: EngineContext, token: str) -> tuple[Path, Media, Holder]:
    """Return the file and the holder of the token of a link; see `ArtifactStore.resolve`.

    Raises BadLink, also for a link of an earlier series, and StoreUnavailable.
    """
    if len(token) == _DIGITS + SHORT_LENGTH:
        token = await _whole(context, token[:_DIGITS], token[_DIGITS:])
    path, media, holder = context.artifacts.resolve(token)
    if isinstance(holder, OfConversation) and holder.series != await _series(context, holder.conversation):
        raise BadLink("the links of this series have ended")
    return path, media, holder


async def _whole(context: EngineContext, partition: str, token: str) -> str:
    """Return a short token with the rest; the short token alone, which is no link, without a record."""
    if partition not in context.store.partitions:
        return token
    key = Key(partition, keys.short_link(token_sha256(token)))
    match (await context.store.get([key]))[key].value:
        case {"rest": str(rest)}:
            return token + rest
    return token


async def _series(context: EngineContext, conversation: str) -> str:
    key = keys.key(context.store, conversation, keys.links)
    found = (await context.store.get([key]))[key].value
    return found if isinstance(found, str) else ""


def end_links(transaction: Transaction, context: EngineContext, conversation: str) -> None:
    """End all earlier links of this conversation in the transaction.

    The name of the next series is random, so no record is read first. A retry of the commit may draw another name.
    """
    transaction.puts[keys.key(context.store, conversation, keys.links).name] = Put(secrets.token_urlsafe(6))
