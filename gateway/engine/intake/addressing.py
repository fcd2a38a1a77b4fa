"""Addressing: the selection of the group messages for the bot, and of the other messages to keep.

A message is for the bot if it mentions or answers the bot or is a command. In a thread or topic where the bot was
addressed within a day, a message not directed at another person is for the bot too. While an action is open, so is a
possible decision of the action.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from channels import Event, Json, Message, MessageEdited, Person
from gateway.engine.context import EngineContext
from gateway.engine.retrying import attempts
from gateway.pending.reading import decides, name_of, reads_as_answer
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys
from gateway.tools.approver_places import place_around

_FOLLOWED_SECONDS = 86_400.0
"""Seconds after the last message for the bot until a thread is no longer followed, or a kept message is dropped."""
_IDS_KEPT = 50
"""The number of kept ids of messages for the bot, for each conversation. Edits of other messages are not read."""
_MOST_CHARACTERS = 500
"""The most characters kept of a message not for the bot."""
_MENTION = re.compile(r"(?<![\w./])@\w")


class Addressing:
    """Selects the events of groups for the bot, under ``ChannelAgent(groups="addressed")``."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def event_for_bot(self, event: Event, conversation: str) -> Event | None:
        """Return the event with the kept messages before it, or None if the event is not for the bot. Raises
        StoreUnavailable.

        Events not for the bot are not stored. With `group_context`, the last of these messages are kept and come with
        the next message for the bot.
        """
        if not event.address.group or self._context.bot.groups == "all":
            return event
        if isinstance(event, MessageEdited):
            return event if event.message_id in _ids(await self._addressed(conversation)) else None
        if not isinstance(event, Message):
            return event
        addressed = await self._addressed(conversation)
        if not _is_addressed(event, addressed):
            if await self._may_decide(event, conversation):
                return event
            await self._keep(event, conversation)
            return None
        await self._note_addressed(event, conversation)
        # A message that was not stored comes again: then only itself was addressed before.
        before = await self._before(event, conversation, begins=set(_ids(addressed)) <= {event.message_id})
        return replace(event, before=before) if before else event

    async def forget(self, event: Event, conversation: str) -> None:
        """Drop the kept messages delivered with this event. Called after the event is stored."""
        if isinstance(event, Message) and event.before:
            delivered = set(event.before)

            def without_delivered(stored: Json) -> Json:
                return [[*line] for line in _lines(stored) if line[1] not in delivered]

            await self._change(self._overheard_key(event, conversation), without_delivered, sealed_for=conversation)

    async def _addressed(self, conversation: str) -> Json:
        """Return the record of messages for the bot in this conversation, or None if the last is older than a day."""
        key = keys.key(self._context.store, conversation, keys.addressed)
        return (await self._context.store.get([key]))[key].value

    async def _note_addressed(self, message: Message, conversation: str) -> None:
        def with_message(stored: Json) -> Json:
            ids = _ids(stored)
            if message.message_id is not None and message.message_id not in ids:
                ids.append(message.message_id)
            return {"ids": [*ids[-_IDS_KEPT:]]}

        await self._change(keys.key(self._context.store, conversation, keys.addressed), with_message)

    async def _may_decide(self, message: Message, conversation: str) -> bool:
        """Return True for a yes, a no or a code by the requester or an approver of an open action of this
        conversation."""
        language = self._context.language(message.person)
        answers = decides(message, language) or reads_as_answer(message.text, language, name_of(message.person))
        if message.person is None or not answers:
            return False
        read = await self._context.load_index(conversation)
        person = str(message.person)
        return any(
            person in (entry.requester, *entry.approvers)
            or place_around(entry.approvers, message.address, message.person, conversation) is not None
            for entry in read.index.open
        )

    def _overheard_key(self, message: Message, conversation: str) -> Key:
        """Return the key of the kept messages around a message. The first message of a thread belongs to the group."""
        if begins_thread(message):
            conversation = self._context.conversation(replace(message.address, thread=None))
        return keys.key(self._context.store, conversation, keys.overheard)

    async def _keep(self, message: Message, conversation: str) -> None:
        """Keep a message not for the bot among the last `group_context` messages."""
        most = self._context.bot.group_context
        if not most or message.person is None or not message.text.strip():
            return
        writes = " (forwarded)" if message.forwarded else ""
        line = [message.message_id or "", f"{_short(_name(message.person))}{writes}: {_short(message.text)}"]

        def with_message(stored: Json) -> Json:
            lines = _lines(stored)
            if not (line[0] and any(number == line[0] for number, _ in lines)):  # the platform may deliver it again
                lines.append(line)
            return [[*each] for each in lines[-most:]]

        await self._change(self._overheard_key(message, conversation), with_message, sealed_for=conversation)

    async def _change(self, key: Key, change: Callable[[Json], Json], *, sealed_for: str | None = None) -> None:
        """Apply `change` to the newest value of a record, and keep the result for a day. An empty result deletes the
        record.

        `sealed_for`: the conversation of a sealed record. Records for a model are sealed. Other processes may change
        the record at the same time. After the last attempt the change is dropped, not the message.
        """
        with suppress(Conflict):
            for attempt in attempts():
                async with attempt:
                    await self._change_once(key, change, sealed_for)

    async def _change_once(self, key: Key, change: Callable[[Json], Json], sealed_for: str | None) -> None:
        context, store = self._context, self._context.store
        record = (await store.get([key]))[key]
        value = change(record.value if sealed_for is None else context.unsealed(key, record, sealed_for))
        transaction = Transaction(partition=key.partition, expect={key.name: record.version})
        if value:
            stored = value if sealed_for is None else context.sealed(key.name, value)
            transaction.puts[key.name] = Put(stored, ttl_seconds=_FOLLOWED_SECONDS)
        else:
            transaction.deletes.append(key.name)
        await store.commit(transaction)

    async def _before(self, message: Message, conversation: str, *, begins: bool) -> tuple[str, ...]:
        """Return the kept messages before this message.

        `begins`: the bot is addressed in a thread for the first time. The result then includes the first message of the
        thread.
        """
        if not self._context.bot.group_context:
            return ()
        here, context = message.address, self._context
        store = context.store
        in_thread = self._overheard_key(message, conversation)
        if not (begins and here.thread is not None and not begins_thread(message)):
            record = (await store.get([in_thread]))[in_thread]
            return tuple(text for _, text in _lines(context.unsealed(in_thread, record, conversation)))
        group = context.conversation(replace(here, thread=None))
        in_group = keys.key(store, group, keys.overheard)
        found = await store.get([in_thread, in_group])
        lines, before = (_lines(context.unsealed(key, found[key], conversation)) for key in (in_thread, in_group))
        return (*(text for number, text in before if number == here.thread), *(text for _, text in lines))


def _is_addressed(message: Message, addressed: Json) -> bool:
    """Return True for a message to the bot.

    `addressed`: the record of earlier messages to the bot in this conversation. It counts only in a thread or topic,
    for a message without a mention and without a reply to a message outside the record.
    """
    if message.mentions_bot or message.answers_bot or message.command is not None:
        return True
    if addressed is None or message.address.thread is None or _MENTION.search(message.text):
        return False
    return message.reply_to is None or message.reply_to in _ids(addressed)


def begins_thread(message: Message) -> bool:
    """Return True for the first message of a thread. This message belongs to the group itself."""
    return message.address.thread is not None and message.address.thread == message.message_id


def _ids(addressed: Json) -> list[str]:
    ids = addressed.get("ids") if isinstance(addressed, dict) else None
    return [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else []


def _lines(stored: Json) -> list[list[str]]:
    """Return the pairs of message id and text."""
    pairs = [each for each in stored if isinstance(each, list)] if isinstance(stored, list) else []
    return [[str(value) for value in pair] for pair in pairs if len(pair) == 2]


def _name(person: Person) -> str:
    return person.name or person.user_id


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_CHARACTERS else f"{flat[:_MOST_CHARACTERS]}…"
