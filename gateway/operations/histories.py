"""An operator's commands on histories: list, read, search, export and forget conversations and people."""

from __future__ import annotations

from gateway.conversations import Conversations, UnknownConversation
from gateway.forgetting import NotForgotten
from gateway.memory import to_entries
from gateway.operations.base import JsonObject, NotDone, StoreCommands


class HistoryCommands(StoreCommands):
    """Commands on the histories of conversations. Arguments are texts, because they may cross a socket."""

    async def conversations(self, person: str = "", limit: str = "100") -> list[str]:
        """Return the names of the conversations, or of the ones in which a person has written. Raises NotDone."""
        return [*await (await self._histories()).list(person=person or None, limit=_number(limit))]

    async def history(self, conversation: str, last: str = "60") -> list[JsonObject]:
        """Return the last messages of a conversation, oldest first. Raises NotDone."""
        try:
            messages = await (await self._histories()).read(conversation, last=_number(last))
        except UnknownConversation as error:
            raise NotDone(str(error)) from None
        return [dict(line) for line in to_entries(messages) if isinstance(line, dict)]

    async def search(self, text: str, person: str = "", limit: str = "5") -> list[JsonObject]:
        """Return the newest messages that contain a text. Raises NotDone."""
        try:
            found = await (await self._histories()).search(text, person=person or None, limit=_number(limit))
        except ValueError as error:
            raise NotDone(str(error)) from None
        return [
            {"conversation": each.conversation, "at": each.at.isoformat(), "message": to_entries([each.message])[0]}
            for each in found
        ]

    async def export(self, who: str) -> JsonObject:
        """Return all that is kept of a conversation or of a person. Raises NotDone."""
        try:
            return await (await self._histories()).export(who)
        except UnknownConversation as error:
            raise NotDone(str(error)) from None

    async def forget(self, who: str) -> JsonObject:
        """Remove all data of a conversation or a person, and return the counts of each kind. Raises NotDone."""
        try:
            gone = await (await self._histories()).forget(who)
        except NotForgotten as error:
            raise NotDone(str(error)) from None
        except ValueError as error:
            raise NotDone(f"{error}; `askfirst conversations list` shows conversations") from None
        return {"gone": dict(gone), "shared": self._store.shared}

    async def _histories(self) -> Conversations:
        bot = await self._bot_name()
        if bot is None:
            raise NotDone("no bot was ever served from this store: start it once with `askfirst serve`")
        return Conversations(self._store, self._keyring, bot, self._artifacts)


def _number(text: str) -> int:
    """Return the number of a text. Raises NotDone for others, and below 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise NotDone(f"write a number from 1 on, not {text!r}")
    return int(text)
