"""Strangers: people that may not talk to the bot. They are told so, or how they can be admitted."""

from __future__ import annotations

import logging

from channels import Address, Message, Person, Reply
from gateway.engine.context import EngineContext
from gateway.engine.pairing import Newcomers
from gateway.engine.reply_limits import stranger_replies
from gateway.pending.actions import OutgoingReply
from gateway.store.transaction import Transaction
from gateway.tools.escape import plain
from gateway.wording import say

__all__ = ["Strangers"]

log = logging.getLogger("askfirst.access")


class Strangers:
    """Decides which people may talk to the bot, answers the others, and admits newcomers."""

    def __init__(self, context: EngineContext) -> None:
        self._context, self._allowed = context, context.allowed
        self._newcomers = Newcomers(context.store, context.keyring)

    async def may_talk(self, person: Person | None) -> bool:
        """Return True for a person that is on the allow-list or was admitted by a code. Raises StoreError."""
        if self._allowed(person):
            return True
        if person is None or person.is_bot or not self._allowed.pairing:
            return False
        return await self._newcomers.is_admitted(person)

    async def turn_away(self, message: Message, person: Person) -> None:
        """Answer a stranger, within the limits of `stranger_replies`. Their message is not kept.

        All strangers together get a few answers a second at most, so that a flood of them delays no other message.
        """
        context, pairing = self._context, self._allowed.pairing
        asks = message.command == "whoami"
        rates = stranger_replies(person, message.address, context.limits.strangers, often=pairing or asks)
        if await context.store.acquire(rates):
            return
        language = context.language(person)
        code = await self._newcomers.note(person, message.address, language, pairing=pairing)
        log.info("turned away %s: `askfirst people list` says how to let them in", person)
        if asks:
            text = say("whoami", language, person=f"`{person}`")
        elif code is not None:
            text = say("newcomer", language, code=code)
        else:
            text = say("stranger", language)
        await self._say(message.address, text, language)

    def may_admit(self, person: Person) -> bool:
        """Return True for a person that the allow-list names. Only these may admit newcomers."""
        return self._allowed.pairing and self._allowed.names(person)

    async def admit(self, code: str, language: str, *, by: Person) -> str:
        """Admit the person with this code, and tell them. Return the answer to `by`, the person that admits them."""
        newcomer = await self._newcomers.admit(code, str(by))
        if newcomer is None:
            return say("no_such_newcomer", language)
        log.info("%s let in %s", by, newcomer.person)
        told_in = newcomer.language
        await self._say(Address.parse(newcomer.address), say("admitted", told_in), told_in)
        return say("has_admitted", language, person=plain(newcomer.name or newcomer.person))

    async def _say(self, address: Address, text: str, language: str) -> None:
        """Queue a text in this language."""
        context, reply = self._context, OutgoingReply(reply=Reply(text=text))
        conversation = context.conversation(address)
        parts = context.parts.render(conversation, address, [reply], cause="stranger", language=language)
        await context.store.commit(Transaction(partition=context.store.partition(conversation), parts=parts))
