"""An operator's commands on people: newcomers, and the people that were admitted."""

from __future__ import annotations

from dataclasses import asdict

from channels import Address, Reply
from gateway.engine.strangers import Newcomers
from gateway.operations.base import OPERATOR, JsonObject, NotDone, StoreCommands
from gateway.pending.actions import OutgoingReply
from gateway.store.transaction import Transaction
from gateway.wording import say


class PeopleCommands(StoreCommands):
    """Commands on the people that may talk to a bot."""

    async def people(self) -> JsonObject:
        """Return the people that were turned away lately, and the people that were admitted by a code."""
        newcomers, admitted = await Newcomers(self._store, self._keyring).listed()
        return {"turned_away": [asdict(each) for each in newcomers], "admitted": [asdict(each) for each in admitted]}

    async def admit(self, code: str) -> JsonObject:
        """Admit the person with this code, and tell them. Raises NotDone."""
        newcomer = await Newcomers(self._store, self._keyring).admit(code, OPERATOR)
        if newcomer is None:
            raise NotDone(f"no newcomer has the code {code!r} now: `askfirst people list` shows those who wait")
        bot = await self._bot_name()
        where = Address.parse(newcomer.address)
        if bot is not None and where.channel in self._channels:
            conversation, text = f"{bot}/{where}", say("admitted", newcomer.language)
            parts = self._render(conversation, where, [OutgoingReply(reply=Reply(text=text))])
            await self._store.commit(Transaction(partition=self._store.partition(conversation), parts=parts))
        return asdict(newcomer)

    async def expel(self, person: str) -> JsonObject:
        """Take back the admission of a person. Raises NotDone."""
        if not await Newcomers(self._store, self._keyring).expel(person):
            raise NotDone(f"{person} was not let in by a code: `askfirst people list` shows who was")
        return {"person": person}
