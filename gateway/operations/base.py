"""The ground of an operator's commands: the store, the outbox, and the error of a command that cannot be done.

Commands work on the store alone, so they do the same within a running server and beside a stopped one. Replies go into
the outbox, and the next process that sends delivers them. Results are JSON, because they may cross a socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import TypeAlias

from channels import Address, AskfirstError, Channel, Json
from gateway.artifacts import ArtifactStore
from gateway.engine.parts import PartRenderer
from gateway.operations.ownership import served_bot
from gateway.pending.actions import OutgoingReply
from gateway.pending.audit import OPERATOR
from gateway.pending.seal import Keyring
from gateway.store.base import Store
from gateway.store.types import QueuedPart
from gateway.wording import FALLBACK

__all__ = ["OPERATOR", "JsonObject", "NotDone", "StoreCommands", "iso"]

JsonObject: TypeAlias = dict[str, Json]


class NotDone(AskfirstError):
    """A command cannot be done, and has changed no record. The message says why."""


class StoreCommands:
    """Commands on one store."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        keyring: Keyring,
        *,
        bot: str | None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        """`bot` is the name of the bot that is served from this store, if it is known. `artifacts` are its files."""
        self._store, self._channels, self._keyring, self._bot = store, channels, keyring, bot
        self._artifacts = artifacts

    async def _day(self, since: str) -> date | None:
        """Return the day of UTC that a command begins with, or None for an empty text. Raises NotDone for others."""
        try:
            return date.fromisoformat(since) if since else None
        except ValueError as error:
            today = (await self._store.now()).date()
            raise NotDone(f"since is a day such as {today}, not {since!r}") from error

    async def _bot_name(self) -> str | None:
        """Return the name of the bot of this store, or None if no bot was ever served from it."""
        return self._bot if self._bot is not None else await served_bot(self._store)

    def _render(
        self, conversation: str, address: Address, replies: list[OutgoingReply], *, language: str = FALLBACK
    ) -> list[QueuedPart]:
        """Return the parts of replies to an address. Raises NotDone when its channel is off."""
        if address.channel not in self._channels:
            raise NotDone(f"{address.channel} is not on: its settings are needed to write to {address}")
        renderer = PartRenderer(self._channels, self._keyring)
        return renderer.render(conversation, address, replies, cause=OPERATOR, language=language)


def iso(at: datetime | None) -> str | None:
    """Return a time in ISO 8601."""
    return at.isoformat() if at is not None else None
