"""Addressing: which messages of a group are for the bot, and what is kept of the others.

A message is for the bot when it mentions the bot, answers it, is a command, or stands in a thread or topic where the
bot was asked within a day. While an action is open, words that may decide it are for the bot too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import cast

from channels import Event, Json, Message, MessageEdited, Person
from gateway.engine.context import EngineContext
from gateway.pending.reading import decides, reads_as_answer
from gateway.store.base import Conflict, Key, Put, StoreUnavailable, Transaction
from gateway.store.form import NewerForm

__all__ = ["Addressing"]

_FOLLOWED_SECONDS = 86_400.0
"""How long a thread stays one in which the bot was asked; each message there that is for the bot begins it anew."""
_IDS_KEPT = 50
"""Ids of the messages of a conversation that were for the bot: an edit is read of these alone."""
_MOST_CHARACTERS = 500
"""Kept of a message that was not for the bot."""
_TRIES = 10
"""At changing a record that others change too; after these the change is left out, the message is not."""
_MENTION = re.compile(r"(?<![\w./])@\w")


class Addressing:
    """Tells which events of groups are for the bot, where ``ChannelAgent(groups="addressed")`` asks for it."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def meant(self, event: Event, conversation: str) -> Event | None:
        """Return the event as the bot is to read it, or None for what is not for the bot. Raises StoreUnavailable.

        Nothing is stored of the latter, unless `group_context` keeps the last messages. These then come with the next
        message that is for the bot.
        """
        if not event.address.group or self._context.bot.groups == "all":
            return event
        if isinstance(event, MessageEdited):
            return event if event.message_id in _ids(await self._asked(conversation)) else None
        if not isinstance(event, Message):
            return event
        asked = await self._asked(conversation)
        if not _is_addressed(event, asked):
            if await self._may_decide(event, conversation):
                return event
            await self._keep(event, conversation)
            return None
        await self._note_asked(event, conversation)
        # The platform delivers a message again that was not taken: then only that one was asked before.
        before = await self._before(event, conversation, begins=set(_ids(asked)) <= {event.message_id})
        return replace(event, before=before) if before else event

    async def forget(self, event: Event, conversation: str) -> None:
        """Drop the kept messages that came with this one, now that it is stored."""
        if isinstance(event, Message) and event.before:
            key = self._beside(event, conversation)
            told = set(event.before)
            await self._change(
                key, lambda stored: cast("Json", [line for line in _lines(stored) if line[1] not in told])
            )

    async def _asked(self, conversation: str) -> Json:
        """Return the record of the bot's being asked here within a day; None when it was not."""
        key = self._context.key(conversation, "asked")
        return (await self._context.store.get([key]))[key].value

    async def _note_asked(self, message: Message, conversation: str) -> None:
        def noted(stored: Json) -> Json:
            ids = _ids(stored)
            if message.message_id is not None and message.message_id not in ids:
                ids.append(message.message_id)
            return {"ids": cast("list[Json]", ids[-_IDS_KEPT:])}

        await self._change(self._context.key(conversation, "asked"), noted)

    async def _may_decide(self, message: Message, conversation: str) -> bool:
        """Return True for a yes, a no or a code by a person who may decide an open action of this conversation."""
        language = self._context.language(message.person)
        if message.person is None or not (decides(message) or reads_as_answer(message.text, language)):
            return False
        key = self._context.key(conversation, "open")
        try:
            read = self._context.read_index(conversation, (await self._context.store.get([key]))[key])
        except NewerForm as error:  # the platform sends it again, and may meet a process of that release
            raise StoreUnavailable(str(error)) from error
        person = str(message.person)
        return any(person in (entry.requester, *entry.approvers) for entry in read.index.open)

    def _beside(self, message: Message, conversation: str) -> Key:
        """Return the key of what is kept where a message stands; a group that moved keeps its conversation."""
        if not _begins_thread(message):
            return self._context.key(conversation, "beside")
        return self._context.key(self._context.conversation(replace(message.address, thread=None)), "beside")

    async def _keep(self, message: Message, conversation: str) -> None:
        """Keep a message that was not for the bot as one of the last `group_context`."""
        most = self._context.bot.group_context
        if not most or message.person is None or not message.text.strip():
            return
        key = self._beside(message, conversation)
        line = [message.message_id or "", f"{_short(_name(message.person))}: {_short(message.text)}"]

        def kept(stored: Json) -> Json:
            lines = _lines(stored)
            if not (line[0] and any(number == line[0] for number, _ in lines)):  # the platform may deliver it again
                lines.append(line)
            return cast("Json", lines[-most:])

        await self._change(key, kept)

    async def _change(self, key: Key, change: Callable[[Json], Json]) -> None:
        """Write what `change` makes of the record for a day; nothing left deletes it.

        Several instances may change it at once: each change is made to the newest value.
        """
        store = self._context.store
        for _ in range(_TRIES):
            record = (await store.get([key]))[key]
            value = change(record.value)
            transaction = Transaction(partition=key.partition, expect={key.name: record.version})
            if value:
                transaction.puts[key.name] = Put(value, ttl_seconds=_FOLLOWED_SECONDS)
            else:
                transaction.deletes.append(key.name)
            with suppress(Conflict):
                await store.commit(transaction)
                return

    async def _before(self, message: Message, conversation: str, *, begins: bool) -> tuple[str, ...]:
        """Return what was said before this message where it stands; when the bot `begins` to be asked in a thread, also
        the message that the thread began with."""
        if not self._context.bot.group_context:
            return ()
        here = message.address
        keys = [self._beside(message, conversation)]
        begins = begins and here.thread is not None and not _begins_thread(message)
        if begins:
            keys.append(self._context.key(self._context.conversation(replace(here, thread=None)), "beside"))
        found = await self._context.store.get(keys)
        said = [text for _, text in _lines(found[keys[0]].value)]
        if begins:
            said = [text for number, text in _lines(found[keys[1]].value) if number == here.thread] + said
        return tuple(said)


def _is_addressed(message: Message, asked: Json) -> bool:
    """`asked`: the record of the bot's being asked in this conversation, which counts in a thread or topic alone."""
    if message.mentions_bot or message.answers_bot or message.command is not None:
        return True
    if asked is None or message.address.thread is None or _MENTION.search(message.text):
        return False
    return message.reply_to is None or message.reply_to in _ids(asked)


def _begins_thread(message: Message) -> bool:
    """Return True for a message that a thread begins with: it stands in the group, beside the threads."""
    return message.address.thread is not None and message.address.thread == message.message_id


def _ids(asked: Json) -> list[str]:
    ids = asked.get("ids") if isinstance(asked, dict) else None
    return [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else []


def _lines(stored: Json) -> list[list[str]]:
    """Return pairs of a message's id and its line."""
    return cast("list[list[str]]", list(stored)) if isinstance(stored, list) else []


def _name(person: Person) -> str:
    return person.name or person.user_id


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_CHARACTERS else f"{flat[:_MOST_CHARACTERS]}…"
