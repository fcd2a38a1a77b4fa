"""An operator's commands on conversations: waiting events, making dead letters of them, writing a message."""

from __future__ import annotations

import secrets

from channels import Address, OptedOut, Reply, Unreachable
from gateway.access.suppression import check_suppression
from gateway.engine.event_bodies import replay_body
from gateway.operations.base import JsonObject, NotDone, StoreCommands, iso
from gateway.pending.actions import OutgoingReply
from gateway.store.errors import Conflict
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, Incoming, Waiting


class ConversationCommands(StoreCommands):
    """Commands on the conversations of a store."""

    async def waiting(self) -> JsonObject:
        """Return how much waits in all, and the conversations in which most events wait."""
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
        }

    async def put_aside(self, conversation: str) -> JsonObject:
        """Make dead letters of all waiting events of a conversation. `replay` puts them back. Raises NotDone."""
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
        )
        reason = "put aside by the operator"
        return Dead(dead_id=dead_id, conversation=waiting.conversation, reason=reason, incoming=incoming)
