"""Base of the operator's commands: the store, the outbox, and the error of an impossible command.

Commands work on the store alone, so the effect is the same within a running server and beside a stopped server. Replies
go into the outbox, and the next sending process delivers them. Results are JSON, because a result may cross a socket.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import TypeAlias

from channels import Address, AskfirstError, Channel, Json
from gateway.artifacts import ArtifactStore
from gateway.engine.parts import PartRenderer
from gateway.engine.retrying import attempts
from gateway.pending.actions import OutgoingReply
from gateway.pending.audit import OPERATOR
from gateway.pending.seal import Keyring
from gateway.pending.sealed_records import open_value
from gateway.store.base import Store
from gateway.store.errors import StoreRefused
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, QueuedPart
from gateway.stored import keys
from gateway.wording import FALLBACK, Wording
from gateway.wording.own import worded


async def claim(store: Store, bot: str) -> None:
    """Claim a shared store for this bot. Raises StoreRefused for the store of another bot.

    Two bots on a store would take each other's messages, because the process with the lease of a conversation answers
    there. The bot of an embedded store may have been renamed: the store has a single owner.
    """
    if not store.shared:
        return
    key = _key(store)
    for attempt in attempts():
        async with attempt:
            record = (await store.get([key]))[key]
            if record.value == bot:
                return
            if record.value is not None:
                raise StoreRefused(
                    f"This store holds the conversations of the bot {record.value!r}, and its messages would be taken "
                    f"by {bot!r}. Give {bot!r} a database of its own: another number at the end of ASKFIRST_STORE."
                )
            claimed = Transaction(partition=key.partition, expect={key.name: record.version}, puts={key.name: Put(bot)})
            await store.commit(claimed)


async def served_bot(store: Store) -> str | None:
    """Return the name of the bot last served from this store, or None."""
    key = _key(store)
    name = (await store.get([key]))[key].value
    return name if isinstance(name, str) else None


async def record_served(store: Store, bot: str | None) -> None:
    """Record the name of the served bot, for commands beside the server.

    A full store takes no new record, so the record is written only for a changed name.
    """
    if await served_bot(store) != bot:
        key = _key(store)
        await store.commit(Transaction(partition=key.partition, puts={key.name: Put(bot)}))


def _key(store: Store, name: str = keys.SERVED) -> Key:
    return Key(store.partition(name), name)


async def served_wording(store: Store, keyring: Keyring) -> Wording:
    """Return the wording of the bot last served from this store, for commands beside the server.

    Without a record, without a valid seal and for sentences that do not fit this release: the gateway's own wording.
    """
    key = _key(store, keys.WORDING)
    match open_value(keyring, key.name, (await store.get([key]))[key].value):
        case {"tone": None | "formal" | "familiar" as tone, "own": dict(own)}:
            return (await asyncio.to_thread(worded, tone, own))[0]  # it may read files
    return Wording()


async def record_wording(store: Store, keyring: Keyring, wording: Wording) -> None:
    """Record the wording of the served bot, unless the record says the same."""
    kept = await served_wording(store, keyring)
    if (kept.tone, kept.own) == (wording.tone, wording.own):
        return
    key = _key(store, keys.WORDING)
    put = Put(keyring.seal(key.name, json.dumps({"tone": wording.tone, "own": wording.own})))
    await store.commit(Transaction(partition=key.partition, puts={key.name: put}))


JsonObject: TypeAlias = dict[str, Json]


class NotDone(AskfirstError):
    """A command cannot be done, and has changed no record. The message gives the reason."""


class StoreCommands:
    """Commands on a store."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        keyring: Keyring,
        *,
        bot: str | None,
        artifacts: ArtifactStore | None = None,
        wording: Wording | None = None,
    ) -> None:
        """`bot` is the name of the bot served from this store, if known, and `wording` the bot's. `artifacts` are the
        bot's files."""
        self._store, self._channels, self._keyring, self._bot = store, channels, keyring, bot
        self._artifacts, self._wording = artifacts, wording

    async def _day(self, since: str) -> date | None:
        """Return the first UTC day of a command, or None for an empty text. Raises NotDone for other texts."""
        try:
            return date.fromisoformat(since) if since else None
        except ValueError as error:
            today = (await self._store.now()).date()
            raise NotDone(f"since is a day such as {today}, not {since!r}") from error

    async def _bot_name(self) -> str | None:
        """Return the name of the bot of this store, or None if no bot was ever served from this store."""
        return self._bot if self._bot is not None else await served_bot(self._store)

    def _render(
        self, conversation: str, address: Address, replies: list[OutgoingReply], *, language: str = FALLBACK
    ) -> list[QueuedPart]:
        """Return the parts of replies to an address. Raises NotDone when the address's channel is off."""
        if address.channel not in self._channels:
            raise NotDone(f"{address.channel} is not on: its settings are needed to write to {address}")
        renderer = PartRenderer(self._channels, self._keyring)
        return renderer.render(conversation, address, replies, cause=OPERATOR, language=language)


def iso(at: datetime | None) -> str | None:
    """Return a time in ISO 8601."""
    return at.isoformat() if at is not None else None
