"""The data of the person of a turn: exported by /export and removed by /forget, both after a confirmation.

The first message is answered with a code, and only a second message with this code runs the command. The command is no
action with a prompt: the action's record would be data of the person, and would block the action's own effect.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Final

from channels import Address, Person, Reply
from channels.direct import DirectChannel
from gateway.artifacts import Artifact, NotKept
from gateway.bot.turn import Turn
from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import RunningTurn, TurnFeature
from gateway.pending.seal import Keyring
from gateway.privacy.conversations import Conversations, UnknownConversation
from gateway.store.types import Incoming
from gateway.stored.memory_events import ForgetDue, forget_lane, memory_body_of
from gateway.tools.pending_action import json_text
from gateway.wording import say

_LASTS_SECONDS: Final = 600
"""A code counts for ten minutes at least, and for twenty at most."""


class OwnData(TurnFeature):
    """Gives the commands of a turn the data of the person."""

    async def before(self, turn: RunningTurn, asked: Turn) -> None:
        asked.own_data = DataOfPerson(self.context, turn.conversation, turn.address, turn.person)


class DataOfPerson:
    """The data of a person, as reached by the person's commands."""

    def __init__(self, context: EngineContext, conversation: str, address: Address, person: Person) -> None:
        self._context, self._conversation = context, conversation
        self._address, self._person = address, person

    async def export(self, said: str, language: str) -> Reply:
        """Return the answer to /export and the text after it."""
        asked = await self._ask_for_code("export", said, language)
        if asked is not None:
            return asked
        context, person = self._context, str(self._person)
        try:
            found = await Conversations(context.store, context.keyring, context.bot.name).export(person)
            content = json_text(found).encode("utf-8", "replace")
            file = await context.files.keep(Artifact.of(content, "export.json", "application/json"), person)
        except UnknownConversation:
            return Reply(text=say("export_nothing", language))
        except NotKept:
            return Reply(text=say("export_too_large", language))
        return Reply(text=say("export_done", language), media=(file,))

    async def forget(self, said: str, language: str) -> Reply:
        """Return the answer to /forget and the text after it. A forgetting begins when the turn has ended."""
        asked = await self._ask_for_code("forget", said, language)
        if asked is not None:
            return asked
        context, person = self._context, str(self._person)
        lane = forget_lane(context.bot.name, person)
        event = ForgetDue(event_id=f"forget/{secrets.token_hex(8)}", conversation=self._conversation, person=person)
        body = context.keyring.stamped("event", lane, memory_body_of(event))
        incoming = Incoming(conversation=lane, event_ids=(event.event_id,), body=body, kind="memory")
        await context.store.accept([incoming])
        return Reply(text=say("forget_begun", language))

    async def _ask_for_code(self, command: str, said: str, language: str) -> Reply | None:
        """Return the question of a command, or a refusal outside a private chat; None for a message with a valid
        code."""
        if self._address.group or self._address.channel == DirectChannel.name:
            return Reply(text=say("own_chat_only", language))
        now = await self._context.store.now()
        codes = _codes(self._context.keyring, f"{command}/{self._person}", now)
        if said.strip() in codes:
            return None
        return Reply(text=say(f"{command}_ask", language, code=codes[0]), exact=True)


def _codes(keyring: Keyring, of: str, now: datetime) -> tuple[str, str]:
    """Return the codes of the current and of the previous ten minutes."""
    number = int(now.timestamp()) // _LASTS_SECONDS
    new, old = (f"{int(keyring.pseudonym(f'{of}/{each}'), 16) % 10_000:04}" for each in (number, number - 1))
    return new, old
