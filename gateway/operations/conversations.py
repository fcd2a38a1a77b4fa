"""The operator's commands on conversations: waiting events, a new message, and histories."""

from __future__ import annotations

import secrets

from channels import Address, OptedOut, Reply, Unreachable
from gateway.access.reached import reached_limits
from gateway.access.suppression import check_suppression
from gateway.engine.event_bodies import replay_body
from gateway.memory import to_entries
from gateway.operations.base import JsonObject, NotDone, StoreCommands, iso
from gateway.pending.actions import OutgoingReply
from gateway.privacy.conversations import Conversations, UnknownConversation
from gateway.privacy.scope import NotForgotten
from gateway.store.errors import Conflict
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, Incoming, Waiting


class ConversationCommands(StoreCommands):
    """Commands on the conversations of a store."""

    async def waiting(self) -> JsonObject:
        """Return the total of waiting events, the conversations with most waiting events, and the limits reached
        lately."""
        stats = await self._store.stats()
        return {
            "waiting": stats.waiting,
            "oldest_seconds": round(stats.oldest_waiting_seconds),
            "unsent": stats.parts,
            "later": stats.parked,
            "conversations": [
                {"conversation": found.conversation, "waiting": found.waiting, "oldest": iso(found.oldest)}
                for found in await self._store.mailboxes()
            ],
            "limits_reached": {name: {**note} for name, note in (await reached_limits(self._store)).items()},
        }

    async def put_aside(self, conversation: str) -> JsonObject:
        """Make dead letters of all waiting events of a conversation. `replay` puts dead letters back. Raises
        NotDone."""
        if await self._store.is_held(conversation):
            raise NotDone(f"a turn of {conversation} runs: try again once it has ended, or write /stop there")
        many = 0
        while found := await self._store.mailbox(conversation):
            transaction = Transaction(partition=self._store.partition(conversation))
            transaction.consume = [(conversation, waiting.seq) for waiting in found]
            transaction.dead = [self._dead_letter(waiting) for waiting in found]
            try:
                await self._store.commit(transaction)
            except Conflict:
                continue
            many += len(found)
        if not many:
            raise NotDone(f"nothing waits in {conversation}")
        return {"conversation": conversation, "put_aside": many}

    async def send(self, address: str, text: str) -> JsonObject:
        """Put a message in Markdown into the outbox of a conversation. Raises NotDone."""
        try:
            where = Address.parse(address)
        except ValueError as error:
            raise NotDone(str(error)) from None
        if not text.strip():
            raise NotDone("there is nothing to send: the text is empty")
        bot = await self._bot_name()
        if bot is None:
            raise NotDone("no bot was ever served from this store: start it once with `askfirst serve`")
        conversation = f"{bot}/{where}"
        try:
            await check_suppression(self._store, conversation)
        except OptedOut:
            raise NotDone(f"{where} has opted out: nothing is sent there until they write START") from None
        except Unreachable as error:
            raise NotDone(
                f"{where} cannot be reached ({error.code}): nothing is sent there until something comes from there, "
                "or a day has passed"
            ) from None
        parts = self._render(conversation, where, [OutgoingReply(reply=Reply(text=text))])
        await self._store.commit(Transaction(partition=self._store.partition(conversation), parts=parts))
        return {"conversation": conversation, "parts": len(parts)}

    def _dead_letter(self, waiting: Waiting) -> Dead:
        dead_id = f"{waiting.seq}-{secrets.token_hex(4)}"
        incoming = Incoming(
            conversation=waiting.conversation,
            event_ids=(f"replay/{dead_id}",),
            body=replay_body(self._keyring, waiting),
            kind=waiting.kind,
        )
        reason = "put aside by the operator"
        return Dead(dead_id=dead_id, conversation=waiting.conversation, reason=reason, incoming=incoming)


class HistoryCommands(StoreCommands):
    """Commands on the histories of conversations. Arguments are texts, because an argument may cross a socket."""

    async def conversations(self, person: str = "", limit: str = "100") -> list[str]:
        """Return the names of the conversations, or of the conversations with messages of a person. Raises NotDone."""
        return [*await (await self._histories()).list(person=person or None, limit=_number(limit))]

    async def history(self, conversation: str, last: str = "60") -> list[JsonObject]:
        """Return the last messages of a conversation, oldest first. Raises NotDone."""
        try:
            messages = await (await self._histories()).read(conversation, last=_number(last))
        except UnknownConversation as error:
            raise NotDone(str(error)) from None
        return [dict(line) for line in to_entries(messages) if isinstance(line, dict)]

    async def search(self, text: str, person: str = "", limit: str = "5") -> list[JsonObject]:
        """Return the newest messages with a text. Raises NotDone."""
        try:
            found = await (await self._histories()).search(text, person=person or None, limit=_number(limit))
        except ValueError as error:
            raise NotDone(str(error)) from None
        return [
            {"conversation": each.conversation, "at": each.at.isoformat(), "message": to_entries([each.message])[0]}
            for each in found
        ]

    async def export(self, who: str) -> JsonObject:
        """Return the whole stored data of a conversation or of a person. Raises NotDone."""
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
